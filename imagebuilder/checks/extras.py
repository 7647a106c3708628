"""What the extras of an image must do, tried for real: a server that answers, a file that comes back."""

from __future__ import annotations

import importlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib import metadata
from typing import Any, Dict, Iterator, List, Optional, Sequence
from urllib.request import Request, urlopen

from .result import Context, Failed, Outcome, Skipped

# Names an S3 server and a bucket of it for `extras.object-storage`; credentials as boto reads them.
S3_ENDPOINT, S3_BUCKET = "IMGBUILD_S3_ENDPOINT", "IMGBUILD_S3_BUCKET"


def _versions(*names: str) -> Dict[str, str]:
    """Give the versions of distributions; raises Failed for the first that is not installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise Failed("{} is not installed".format(name)) from None
    return found


def _program(*words: str, limit: float = 30.0) -> str:
    """Run a program to its end and give what it printed; raises Failed where it is missing or fails."""
    try:
        done = subprocess.run(
            list(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit, check=False
        )
    except OSError as error:
        raise Failed("`{}` cannot be run: {}".format(words[0], error.strerror)) from error
    text = done.stdout.decode(errors="replace").strip()
    if done.returncode:
        raise Failed(
            "`{}` ended with {}".format(" ".join(words[:2]), done.returncode), diagnosis=text[-400:] or None
        )
    return text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _server(words: Sequence[str], folder: str, environment: Optional[Dict[str, str]] = None) -> Iterator[Any]:
    """Run a server for a while; its output is in `log` of the folder."""
    with open(os.path.join(folder, "log"), "wb") as log:
        process = subprocess.Popen(
            list(words), stdout=log, stderr=log, cwd=folder, env={**os.environ, **(environment or {})}
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _answer(process: Any, folder: str, url: str, token: str, data: Optional[bytes], limit: float) -> Any:
    """Ask a server until it answers; raises Failed with its output where it ends or never does."""
    end = time.monotonic() + limit
    request = Request(url, data=data, headers={"Authorization": "token {}".format(token)})  # noqa: S310
    why = "no answer"
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(request, timeout=5) as answer:  # noqa: S310
                return json.load(answer)
        except (OSError, ValueError) as error:
            why = str(error)
            time.sleep(0.2)
    with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as log:
        raise Failed("the server gives no answer: {}".format(why), diagnosis=log.read()[-400:] or None)


def jupyter(context: Context) -> Outcome:
    """Start JupyterLab on the loopback, and a Python kernel in it."""
    evidence: Dict[str, Any] = dict(_versions("jupyterlab", "ipykernel"))
    token, port = "imgbuild-check", _free_port()
    words = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port={}".format(port)]
    words += ["--IdentityProvider.token={}".format(token), "--ServerApp.port_retries=0", "--allow-root"]
    with tempfile.TemporaryDirectory() as folder:
        homes = ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")
        with _server(words, folder, dict.fromkeys(homes, folder)) as process:
            base = "http://127.0.0.1:{}/api".format(port)
            evidence["server"] = _answer(process, folder, base, token, None, context.limit / 2)["version"]
            kernel = _answer(process, folder, base + "/kernels", token, b'{"name": "python3"}', 20)
            evidence["kernel"] = kernel["name"]
    return Outcome("JupyterLab {} answers and starts a kernel".format(evidence["jupyterlab"]), evidence)


def monitoring(context: Context) -> Outcome:
    """Write a number with TensorBoard and with MLflow and read it back; find NVML and its exporter."""
    evidence: Dict[str, Any] = dict(
        _versions("tensorboard", "mlflow-skinny", "nvidia-ml-py", "nvitop-exporter")
    )
    with tempfile.TemporaryDirectory() as folder:
        evidence["tensorboard_read"] = _tensorboard(os.path.join(folder, "events"))
        evidence["mlflow_read"] = _mlflow(folder)
    evidence["nvml"] = _nvml()
    importlib.import_module("nvitop_exporter")
    return Outcome(
        "TensorBoard and MLflow give back what was written; NVML: {}".format(evidence["nvml"]), evidence
    )


def _tensorboard(folder: str) -> float:
    reading = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    event = importlib.import_module("tensorboard.compat.proto.event_pb2")
    summary = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
    writing = importlib.import_module("tensorboard.summary.writer.event_file_writer")
    writer = writing.EventFileWriter(folder)
    value = summary.Value(tag="loss", simple_value=0.5)
    writer.add_event(event.Event(wall_time=time.time(), step=1, summary=summary(value=[value])))
    writer.close()
    events = reading.EventAccumulator(folder)
    events.Reload()
    read = [scalar.value for scalar in events.Scalars("loss")]
    if read != [0.5]:
        raise Failed("TensorBoard read {} where 0.5 was written".format(read))
    return float(read[0])


def _mlflow(folder: str) -> float:
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = importlib.import_module("mlflow")
    mlflow.set_tracking_uri("file://" + os.path.join(folder, "mlruns"))
    with mlflow.start_run() as run:
        mlflow.log_metric("loss", 0.5)
    read = mlflow.get_run(run.info.run_id).data.metrics.get("loss")
    if read != 0.5:
        raise Failed("MLflow read {} where 0.5 was written".format(read))
    return float(read)


def _nvml() -> str:
    pynvml = importlib.import_module("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return "no driver here ({})".format(error)
    return "{} GPUs".format(pynvml.nvmlDeviceGetCount())


def object_storage(context: Context) -> Outcome:
    """Write an object to S3 and read it back where a server is named; else see that the back end is there."""
    evidence: Dict[str, Any] = dict(_versions("fsspec", "s3fs"))
    fsspec = importlib.import_module("fsspec")
    fsspec.get_filesystem_class("s3")
    endpoint, bucket = os.environ.get(S3_ENDPOINT), os.environ.get(S3_BUCKET)
    if not endpoint or not bucket:
        raise Skipped(
            "s3fs {} imports; no server is named".format(evidence["s3fs"]),
            next_step="docker run -e {}=http://HOST:PORT -e {}=BUCKET -e AWS_ACCESS_KEY_ID=... IMAGE "
            "imgbuild-check --only extras".format(S3_ENDPOINT, S3_BUCKET),
        )
    files = fsspec.filesystem("s3", endpoint_url=endpoint)
    path = "{}/imgbuild-check-{}".format(bucket, os.urandom(6).hex())
    content = os.urandom(1 << 20)
    try:
        with files.open(path, "wb") as file:
            file.write(content)
        with files.open(path, "rb") as file:
            same = file.read() == content
    finally:
        if files.exists(path):
            files.rm(path)
    if not same:
        raise Failed("the object that came back is not the one that was written")
    return Outcome("1 MiB went to S3 and came back", {**evidence, "endpoint": endpoint})


def distributed(context: Context) -> Outcome:
    """Have accelerate prepare a model and take a step, and compare with the plain step."""
    evidence: Dict[str, Any] = dict(_versions("accelerate"))
    torch = importlib.import_module("torch")
    accelerate = importlib.import_module("accelerate")
    steps: List[Any] = []
    for prepared in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        one = accelerate.Accelerator(cpu=context.device != "cuda")
        if prepared:
            model, optimizer = one.prepare(model, optimizer)
        inputs = torch.ones(2, 8, device=one.device if prepared else "cpu")
        loss = model(inputs).square().mean()
        one.backward(loss) if prepared else loss.backward()
        optimizer.step()
        steps.append([p.detach().cpu().clone() for p in model.parameters()])
    error = max(float((a - b).abs().max()) for a, b in zip(*steps, strict=False))
    evidence["error"] = error
    if error > 1e-5:
        raise Failed("a step with accelerate is off the plain one by {:.1e}".format(error), evidence=evidence)
    return Outcome("a step with accelerate {} equals the plain one".format(evidence["accelerate"]), evidence)


def compression(context: Context) -> Outcome:
    """Prune a small model and run it; see that the quantisation library loads its own code."""
    if context.manifest is not None and context.manifest.framework == "tensorflow":
        return _tensorflow_compression()
    evidence: Dict[str, Any] = dict(_versions("bitsandbytes", "torch-pruning"))
    torch = importlib.import_module("torch")
    pruning = importlib.import_module("torch_pruning")
    importlib.import_module("bitsandbytes")
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    example = torch.ones(1, 16)
    graph = pruning.DependencyGraph().build_dependency(model, example_inputs=example)
    graph.get_pruning_group(model[0], pruning.prune_linear_out_channels, idxs=[0, 1, 2, 3]).prune()
    evidence["shape"] = list(model(example).shape)
    if model[0].out_features != 28 or evidence["shape"] != [1, 4]:
        raise Failed("the pruned model has the wrong shape", evidence=evidence)
    return Outcome("a pruned model runs, bitsandbytes {} loads".format(evidence["bitsandbytes"]), evidence)


def _tensorflow_compression() -> Outcome:
    evidence: Dict[str, Any] = dict(_versions("tensorflow-model-optimization", "tf-keras"))
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    tfmot = importlib.import_module("tensorflow_model_optimization")
    keras = importlib.import_module("tf_keras")
    model = keras.Sequential([keras.layers.Dense(4, input_shape=(8,))])
    pruned = tfmot.sparsity.keras.prune_low_magnitude(model)
    evidence["layers"] = [layer.name for layer in pruned.layers]
    return Outcome("a model takes pruning wrappers", evidence)


def ssh(context: Context) -> Outcome:
    """Log in to this container with a key of its own and run a command, as a launcher would."""
    evidence: Dict[str, Any] = {"version": _program("ssh", "-V")}
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise Skipped("uid {} has no name here, which sshd asks for".format(os.getuid())) from None
    daemon = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or "sshd"
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        host_key, key = os.path.join(folder, "host"), os.path.join(folder, "key")
        for path in (host_key, key):
            _program("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
        lines = [
            "Port {}".format(port), "ListenAddress 127.0.0.1", "HostKey {}".format(host_key),
            "AuthorizedKeysFile {}.pub".format(key), "StrictModes no", "UsePAM no",
            "PidFile {}/pid".format(folder), "PasswordAuthentication no",
        ]  # fmt: skip
        with open(os.path.join(folder, "config"), "w") as file:
            file.write("\n".join(lines) + "\n")
        if os.getuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        with _server([daemon, "-D", "-e", "-f", os.path.join(folder, "config")], folder):
            evidence["said"] = _login(user, key, port, time.monotonic() + context.limit / 2)
    return Outcome("a login with a key runs a command", evidence)


def _login(user: str, key: str, port: int, end: float) -> str:
    words = ["ssh", "-i", key, "-p", str(port), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
    words += ["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "{}@127.0.0.1".format(user)]
    while True:
        try:
            return _program(*words, "echo imgbuild")
        except Failed:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


def dev(context: Context) -> Outcome:
    """Commit a file with git, and find make and an editor."""
    with tempfile.TemporaryDirectory() as folder:
        identity = ("-c", "user.name=check", "-c", "user.email=check@localhost")
        _program("git", "-C", folder, "init", "--quiet")
        with open(os.path.join(folder, "file"), "w") as file:
            file.write("x\n")
        _program("git", "-C", folder, "add", "file")
        _program("git", "-C", folder, *identity, "commit", "--quiet", "--message", "one")
    evidence = {name: _program(name, "--version").splitlines()[0] for name in ("git", "make", "nano")}
    return Outcome("git commits, make and nano are there", dict(evidence))
