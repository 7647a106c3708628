from pathlib import Path
import pytest, time
from conftest import *
from local_index import *

def test_x(engine, cache, tmp_path, tmp_path_factory):
    t=time.time()
    uv = installer(tmp_path_factory.mktemp("uv"))
    print("uv", time.time()-t)
    with tiny_stack(tmp_path, cache, uv, "n1") as tiny:
        print("lock", time.time()-t)
        done = tiny.build("--tag", "imgbuild-test/p:1")
        print(done.stderr, done.stdout, time.time()-t)
        assert done.returncode == 0
