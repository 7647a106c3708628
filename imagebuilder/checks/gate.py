"""The program in front of every command of an image: it asks whether driver and GPU fit the stack.

Run as `python3 -IS gate.py COMMAND...` it compares the host with stack.json, says at most one line on
stderr, and becomes the command. IMGBUILD_GATE steers it: `warn` (the default), `strict` (what does not
fit, or no GPU at all, ends the container with code 3), `off`. It stands alone, imports as little as it
can, and whatever is wrong with manifest or driver never keeps the command from running in `warn`.
"""

from __future__ import annotations

# The same as <signal.h> has them; the module `signal` would cost more than all the rest of the gate.
import _signal  # type: ignore[import-not-found]  # built in, without stubs
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

MANIFEST = "/opt/imgbuild/stack.json"
PROC_VERSION = "/proc/driver/nvidia/version"
DEV = "/dev"
RUN_LINE = "docker run --gpus all --shm-size=1g IMAGE"
DOES_NOT_FIT, NOT_EXECUTABLE, NOT_FOUND = 3, 126, 127
MODES = ("warn", "strict", "off")
_NVML_SECONDS = 2.0


def main(
    command: Sequence[str],
    mode: str,
    manifest: str = MANIFEST,
    proc_version: str = PROC_VERSION,
    dev: str = DEV,
) -> NoReturn:
    """Look at the host, say what does not fit, and become the command (or leave, in strict mode)."""
    if mode != "off":
        try:
            line = verdict(manifest, proc_version, dev)
        except Exception:
            line = ""  # a gate that breaks what it guards is worse than none
        if mode not in MODES:
            line = line or "IMGBUILD_GATE=`{}` is none of warn, strict, off".format(mode)
        if line:
            say(line if mode == "strict" else line + "; IMGBUILD_GATE=off silences this")
            if mode == "strict":
                leave(DOES_NOT_FIT)
    become(command)


def say(line: str) -> None:
    """Write one line to stderr; a closed stderr is no reason to stop."""
    try:  # noqa: SIM105 - contextlib is not loaded for one line
        os.write(2, "imgbuild: {}\n".format(line.replace("\n", " ")).encode("utf-8", "replace"))
    except OSError:
        pass


def leave(code: int) -> NoReturn:
    """End at once with a code."""
    os._exit(code)


def verdict(manifest: str, proc_version: str, dev: str) -> str:
    """Say in one line what does not fit, and which image would; empty when all fits or nothing is known."""
    try:
        names = os.listdir(dev)
    except OSError:
        names = []
    wsl = "dxg" in names
    if not wsl and not any(name.startswith("nvidia") and name[6:].isdigit() for name in names):
        return no_gpu(proc_version)
    stack = read_manifest(manifest)
    if stack is None:
        return ""
    driver, gpus = ask_nvml()
    # The kernel module's own word counts; WSL2 has none, there NVML passes on the Windows driver's version.
    return compare(stack, read_driver(proc_version) or driver, gpus, wsl)


def no_gpu(proc_version: str) -> str:
    """Say how to get a GPU, or why there can be none."""
    if os.path.exists(proc_version):
        return "no GPU in this container: start it with `{}`".format(RUN_LINE)
    return "no GPU and no NVIDIA driver visible, so everything runs on the CPU; with a GPU: `{}`".format(
        RUN_LINE
    )


def read_manifest(path: str) -> Optional[Dict[str, Any]]:
    """Read stack.json; None when it is missing or broken."""
    import json

    try:
        with open(path, encoding="utf-8") as file:
            stack = json.load(file)
    except (OSError, ValueError):
        return None
    return stack if isinstance(stack, dict) else None


def read_driver(path: str) -> str:
    """Give the version of the kernel module, the first dotted number of its line; empty without one."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return ""
    for word in words:
        if word.replace(".", "").isdigit() and "." in word:
            return word
    return ""


def numbers(version: object) -> Tuple[int, ...]:
    """Give the dotted numbers of a version; empty when it is not made of numbers."""
    parts = str(version).split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def compare(stack: Dict[str, Any], driver: str, gpus: Sequence[Tuple[str, str]], wsl: bool = False) -> str:
    """Compare driver and GPUs (name, capability) with a stack; the line names an image that fits both."""
    name = stack.get("identifier") or "this image"
    wrong = []
    if not driver_fits(stack, driver, wsl):
        wrong.append("driver {} is older than {}".format(driver, stack["driver_min"]))
    for gpu, capability in dict.fromkeys(gpus):
        if not gpu_fits(stack, capability):
            wrong.append("{} ({}) is not among its compute capabilities".format(gpu, capability))
    if not wrong:
        return ""
    for other in stack.get("fallbacks") or ():
        if driver_fits(other, driver, wsl) and all(gpu_fits(other, capability) for _, capability in gpus):
            return "this host does not fit {}: {}; `{}` would fit".format(
                name, ", ".join(wrong), other.get("stack")
            )
    return "this host does not fit {}: {}; no other known image fits either".format(name, ", ".join(wrong))


def driver_fits(stack: Dict[str, Any], driver: str, wsl: bool) -> bool:
    """Whether a driver reaches the floor; an unknown one is not held against the host."""
    floor, found = numbers(stack.get("driver_min") or ""), numbers(driver)
    if not floor or not found:
        return True
    # Windows drivers count on their own within a branch: there only the branch can be compared.
    return found[:1] >= floor[:1] if wsl else found >= floor


def gpu_fits(stack: Dict[str, Any], capability: str) -> bool:
    """Whether a stack has code for a GPU: the capability itself, or a lower minor of the same major."""
    listed, found = stack.get("compute_capabilities") or (), numbers(capability)
    if not listed or len(found) != 2 or capability in listed:
        return True
    # Integrated GPUs need code of their own.
    if found in ((5, 3), (6, 2), (7, 2), (8, 7)):
        return False
    return any(numbers(entry)[:1] == found[:1] and numbers(entry) <= found for entry in listed)


def ask_nvml() -> Tuple[str, List[Tuple[str, str]]]:
    """Ask NVML for the driver and the GPUs, in a process of its own: a lost GPU can hang or crash it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.write(writer, "\n".join(nvml_lines()).encode())
        except BaseException:
            pass
        os._exit(0)
    os.close(writer)
    text = _read(reader)
    os.close(reader)
    try:
        os.kill(child, _signal.SIGKILL)
        os.waitpid(child, os.WNOHANG if text is None else 0)
    except OSError:
        pass
    lines = (text or b"").decode("utf-8", "replace").split("\n")
    pairs = [line.rpartition("\t") for line in lines[1:] if "\t" in line]
    return lines[0], [(name, capability) for name, _, capability in pairs]


def _read(reader: int) -> Optional[bytes]:
    """Read to the end; None when that takes too long."""
    import select

    data = b""
    while True:
        if not select.select([reader], [], [], _NVML_SECONDS)[0]:
            return None
        more = os.read(reader, 65536)
        if not more:
            return data
        data += more


def nvml_lines() -> List[str]:
    """Give the driver's version (empty without NVML), then for each GPU its name, a tab, its capability."""
    import ctypes

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return [""]
    if nvml.nvmlInit_v2() != 0:
        return [""]
    version, count = ctypes.create_string_buffer(96), ctypes.c_uint(0)
    nvml.nvmlSystemGetDriverVersion(version, 96)
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    lines = [version.value.decode("ascii", "replace")]
    for index in range(count.value):
        handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        major, minor = ctypes.c_int(0), ctypes.c_int(0)
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            continue
        nvml.nvmlDeviceGetName(handle, name, 96)
        if nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)) == 0:
            lines.append("{}\t{}.{}".format(name.value.decode("utf-8", "replace"), major.value, minor.value))
    return lines


def become(command: Sequence[str]) -> NoReturn:
    """Replace this process by the command, with signals and environment as the container was given them."""
    # Python ignores these two, and what is ignored stays so in the command: `yes | head` would never end.
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    if not command:
        say("no command was given")
        leave(NOT_FOUND)
    try:
        os.execvpe(command[0], list(command), given_environment(os.environ))  # noqa: S606 - it is the gate's job
    except FileNotFoundError:
        say("`{}`: command not found".format(command[0]))
        leave(NOT_FOUND)
    except (OSError, ValueError) as error:
        say("`{}` cannot be executed: {}".format(command[0], getattr(error, "strerror", None) or error))
        leave(NOT_EXECUTABLE)


def given_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """Give the environment without the LC_CTYPE that Python itself sets in the C locale."""
    given = dict(environment)
    try:
        with open("/proc/self/environ", "rb") as file:
            if not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0")):
                given.pop("LC_CTYPE", None)
    except OSError:
        pass
    return given


if __name__ == "__main__":
    main(sys.argv[1:], os.environ.get("IMGBUILD_GATE") or "warn")
