"""Findings on the network: index, registry or bootstrap, clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.doctor import fixes
from imagebuilder.doctor.finding import Facts, Finding, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.host.reach import Answer

# certificates and apt's release files are refused by a clock that is off by more than this
_CLOCK_SECONDS = 300

_SETTINGS = "env | grep -iE '^(IMGBUILD|PIP|UV)_|proxy'"


def net_findings(facts: Facts) -> Iterator[Finding]:
    """Give the findings on the index, where bases come from, and the clock."""
    if facts.index is not None or "index" in facts.unanswered:
        yield _index(facts.index)
    if facts.registry is not None or "registry" in facts.unanswered:
        yield _registry(facts)
    yield _bootstrap(facts)
    yield from _engine_proxy(facts)
    yield from _clock(facts)


def _finding(name: str, status: Status, what: str, why: str | None = None, fix: str | None = None) -> Finding:
    return Finding(id=name, needed_for="build", status=status, what=what, why=why, fix=fix)


def _index(answer: Answer | None) -> Finding:
    if answer is not None and answer.reached:
        return _finding("index", "ok", f"the package index answers{_way(answer)}")
    why, fix = _trouble(answer)
    return _finding("index", "fail", f"the package index cannot be used{_way(answer)}", why, fix)


def _way(answer: Answer | None) -> str:
    if answer is None:
        return ""
    proxy = f"through the proxy {answer.proxy}, " if answer.proxy else ""
    return f" ({answer.url}, {proxy}{answer.seconds:.1f} s)"


def _trouble(answer: Answer | None) -> tuple[str, str]:
    """Say why an address cannot be used and what to do, by where the way to it ended."""
    if answer is None:
        why = "no answer in time: its name could not be resolved, or packets are dropped on the way"
        return why, "cat /etc/resolv.conf\nexport HTTPS_PROXY=http://PROXY:PORT"
    look = f"curl -sSI {answer.url}" if "://" in answer.url else _SETTINGS
    words = {
        "name": ("its name cannot be resolved", "cat /etc/resolv.conf\nexport HTTPS_PROXY=http://PROXY:PORT"),
        "connection": ("no connection to it", f"{look}\nexport HTTPS_PROXY=http://PROXY:PORT"),
        "timeout": ("it does not answer in time", f"{look}\nexport HTTPS_PROXY=http://PROXY:PORT"),
        "tls": (
            "its certificate is not trusted here: a proxy that opens TLS, or a private authority",
            "export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt\n"
            "# with the authority in it: copy its .crt to /usr/local/share/ca-certificates/,"
            " then update-ca-certificates",
        ),
        "proxy": (f"the proxy {answer.proxy} refuses or does not answer", "env | grep -i proxy"),
        "status": (f"it answers with HTTP {answer.status}", look),
        "address": ("the address cannot be used", _SETTINGS),
    }
    why, fix = words[answer.trouble or "address"]
    if answer.status == 429:
        why, fix = "it limits the number of pulls (HTTP 429, `toomanyrequests`)", "docker login"
    return f"{why} ({answer.detail})" if answer.detail else why, fix


def _registry(facts: Facts) -> Finding:
    """Judge the registry: a base comes from it or is bootstrapped, only the lack of both stops a build."""
    answer = facts.registry
    if answer is not None and answer.reached:
        return _finding("registry", "ok", f"the registry answers{_way(answer)}")
    why, fix = _trouble(answer)
    if facts.machine.mmdebstrap:
        what = f"the registry cannot be used{_way(answer)}, bases are bootstrapped instead"
        return _finding("registry", "warn", what, why, fix)
    what = f"the registry cannot be used{_way(answer)}, and no base can be bootstrapped"
    return _finding("registry", "fail", what, why, f"{fix}\n{_install_mmdebstrap(facts)}")


def _bootstrap(facts: Facts) -> Finding:
    program = facts.machine.mmdebstrap
    if program:
        return _finding("bootstrap", "ok", f"bases can be bootstrapped ({program})")
    return _finding(
        "bootstrap",
        "skip",
        "mmdebstrap is not installed",
        "needed only to bootstrap a base where no registry can be reached",
        _install_mmdebstrap(facts),
    )


def _install_mmdebstrap(facts: Facts) -> str:
    return fixes.install(facts.machine, "mmdebstrap", "https://gitlab.mister-muffin.de/josch/mmdebstrap")


def _engine_proxy(facts: Facts) -> Iterator[Finding]:
    """Warn of a proxy that this shell uses and the engine, which pulls by itself, does not know."""
    proxy = facts.registry.proxy if facts.registry else None
    if proxy is None or facts.daemon.proxy:
        return
    yield Finding(
        id="engine-proxy",
        needed_for="build",
        status="warn",
        what=f"this shell reaches registries through the proxy {proxy}, the engine has none",
        why="the engine pulls by itself and does not see the variables of this shell",
        fix=fixes.daemon_setting(facts.machine, {"proxies": {"http-proxy": proxy, "https-proxy": proxy}}),
    )


def _clock(facts: Facts) -> Iterator[Finding]:
    date = next((one.date for one in (facts.index, facts.registry) if one and one.date), None)
    if date is None:
        return
    skew = (facts.now - date).total_seconds()
    if abs(skew) <= _CLOCK_SECONDS:
        yield Finding(
            id="clock",
            needed_for="build",
            status="ok",
            what=f"the clock agrees with the servers ({skew:+.0f} s)",
        )
        return
    yield Finding(
        id="clock",
        needed_for="build",
        status="warn",
        what=f"the clock is {abs(skew) / 60:.0f} minutes {'ahead' if skew > 0 else 'behind'}",
        why="certificates and apt's release files are refused when the clock is off",
        fix=fixes.as_root(
            facts.machine, "timedatectl set-ntp true" if facts.machine.systemd else "hwclock --hctosys"
        ),
    )
