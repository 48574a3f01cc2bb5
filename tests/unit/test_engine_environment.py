"""The environment of the engine's program is built from what is known to be needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec._docker.engine import PROXY_VARIABLES, cli_environment, without_proxies

HOST = "ssh://sbx.invalid"
ELSEWHERE = {
    "DOCKER_HOST": "unix:///other.sock",
    "DOCKER_CONTEXT": "other",
    "CONTAINER_HOST": "unix:///other.sock",
    "CONTAINER_CONNECTION": "other",
}


def test_secrets_of_this_process_do_not_reach_the_program() -> None:
    """What is not known to be needed is not there."""
    environ = {"PATH": "/bin", "API_TOKEN": "secret", "LD_PRELOAD": "/x", "DOCKER_NEW": "1"}
    assert cli_environment(environ, docker_host=None) == {"PATH": "/bin", "LC_ALL": "C"}


@pytest.mark.parametrize(
    "name", ["HOME", "DOCKER_CONFIG", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "CONTAINERS_CONF"]
)
def test_what_the_program_needs_is_there(name: str) -> None:
    """Without these it finds no configuration, no key or no storage."""
    assert cli_environment({name: "value"}, docker_host=None)[name] == "value"
    assert cli_environment({name: "value"}, docker_host=HOST)[name] == "value"


def test_without_a_setting_the_environment_says_where() -> None:
    """An unset `docker_host` leaves the choice to whoever started this process."""
    assert ELSEWHERE.items() <= cli_environment(ELSEWHERE, docker_host=None).items()


def test_a_setting_beats_every_other_way_to_say_where() -> None:
    """Untrusted code runs on the engine of the settings, whatever else points elsewhere."""
    built = cli_environment(ELSEWHERE, docker_host=HOST)
    assert built["DOCKER_HOST"] == built["CONTAINER_HOST"] == HOST
    assert "DOCKER_CONTEXT" not in built
    assert "CONTAINER_CONNECTION" not in built


def test_the_program_is_found_without_a_path() -> None:
    """A server may be started with no environment at all."""
    assert cli_environment({}, docker_host=None)["PATH"]


def test_its_words_are_not_translated() -> None:
    """Diagnosis reads them."""
    built = cli_environment({"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}, docker_host=None)
    assert built["LC_ALL"] == "C"
    assert "LANG" not in built


@given(
    st.dictionaries(st.sampled_from((*PROXY_VARIABLES, *ELSEWHERE, "PATH")), st.text()),
    st.none() | st.just(HOST),
)
def test_a_proxy_never_reaches_the_program(environ: dict[str, str], host: str | None) -> None:
    """It would hand the proxy, and the password in it, to every container."""
    assert not set(PROXY_VARIABLES) & set(cli_environment(environ, docker_host=host))


def test_containers_are_made_without_proxies() -> None:
    """Each is named in both spellings and given no value."""
    flags = without_proxies()
    assert set(flags[::2]) == {"--env"}
    assert flags[1::2] == PROXY_VARIABLES
    assert {"HTTP_PROXY", "https_proxy", "no_proxy", "ALL_PROXY", "ftp_proxy"} <= set(flags)
    assert not any("=" in flag for flag in flags)
