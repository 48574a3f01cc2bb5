"""The answers of inspect and ps are read exactly, or refused."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_exec._docker.answers import UnreadableAnswer
from sandbox_exec._docker.inventory import (
    ContainerFacts,
    EngineState,
    ImageFacts,
    Inventory,
    ListedContainer,
    parse_inspect,
    parse_ps,
)

CAPTURED = Path(__file__).parents[1] / "fixtures" / "engine_output"
NEVER = "0001-01-01T00:00:00Z"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()

# Names that are read, so that nonsense comes near to an answer.
NAMES = ("Id", "ID", "Name", "Names", "State", "Status", "Labels", "Image", "Created", "RepoTags")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner)
    ),
    max_leaves=20,
)


def container(**changes: object) -> dict[str, object]:
    """What docker 20.10 prints about a container, as far as it is read."""
    return {
        "Id": "c" * 64,
        "Name": "/box",
        "Created": "2026-11-29T12:00:00.5Z",
        "State": {
            "Status": "running",
            "Pid": 42,
            "StartedAt": "2026-11-29T12:00:01.237714696Z",
            "FinishedAt": NEVER,
        },
        "Image": "sha256:abc",
        "ExecIDs": None,
        "Config": {"User": "", "Labels": {"a": "b,c"}},
    } | changes


def image(**changes: object) -> dict[str, object]:
    """What docker 20.10 prints about an image, as far as it is read."""
    return {
        "Id": "sha256:abc",
        "RepoTags": ["box:latest"],
        "Config": {"User": "app", "Entrypoint": ["tini", "--"]},
        "RootFS": {"Type": "layers"},
    } | changes


NETWORK = {"Name": "box", "Id": "e4ca", "Scope": "local", "Driver": "bridge", "IPAM": {}}
PODMAN_NETWORK = {"name": "box", "id": "e4ca", "driver": "bridge"}
VOLUME = {"Name": "box", "Driver": "local", "Mountpoint": "/volumes/box"}
POD = {"Id": "ab", "Name": "box", "State": "Created", "InfraContainerID": "cd"}


def inspected(*items: object) -> Inventory:
    return parse_inspect(json.dumps(items).encode())


def one(**changes: object) -> ContainerFacts:
    (facts,) = inspected(container(**changes)).containers
    return facts


def test_a_container_and_its_image_come_from_one_answer() -> None:
    """One inspect answers for both, each told by its own fields."""
    assert inspected(container(), image()) == Inventory(
        (
            ContainerFacts(
                id="c" * 64,
                name="box",
                state=EngineState.RUNNING,
                labels={"a": "b,c"},
                image_id="sha256:abc",
                created=NOON + 0.5,
                started=NOON + 1 + 0.237714696,
                finished=None,
                pid=42,
            ),
        ),
        (ImageFacts("sha256:abc", ("box:latest",), "app", ("tini", "--")),),
    )


@pytest.mark.parametrize("other", [NETWORK, PODMAN_NETWORK, VOLUME, POD, container()])
def test_what_merely_has_the_images_name_is_not_the_image(other: dict[str, object]) -> None:
    """Inspect takes the first kind of thing that has a name."""
    assert inspected(other).images == ()


@pytest.mark.parametrize("other", [NETWORK, PODMAN_NETWORK, VOLUME, POD, image()])
def test_what_merely_has_the_containers_name_is_no_container(other: dict[str, object]) -> None:
    """A pod has a state and no image, an image has no state."""
    assert inspected(other).containers == ()


@pytest.mark.parametrize(
    "path",
    sorted(CAPTURED.glob("*/unknown--inspect-no-image.json")),
    ids=lambda path: path.parent.name,
)
def test_a_real_answer_is_read(path: Path) -> None:
    """What each engine printed about a container that runs, beside an image that is missing."""
    found = parse_inspect(json.loads(path.read_text())["stdout"].encode())
    box = found.container("sbx-capture")
    assert box is not None
    assert found == Inventory((box,))
    assert (box.state, box.labels["sbx-capture"]) == (EngineState.RUNNING, "1")
    assert box.started is not None
    assert box.created <= box.started <= box.created + 60
    assert box.finished is None
    assert box.pid > 0


def test_a_container_is_found_by_its_exact_name_or_id() -> None:
    """The engine also answers to a beginning of an id; that is somebody else's container."""
    found = inspected(container())
    assert found.container("box") is found.container("c" * 64) is found.containers[0]
    assert found.container("cc") is None


@pytest.mark.parametrize(
    ("word", "state"),
    [
        *((state.value, state) for state in EngineState),
        ("Running", EngineState.RUNNING),
        ("stopped", EngineState.EXITED),
        ("initialized", EngineState.CREATED),
        ("configured", EngineState.CREATED),
        ("stopping", EngineState.UNKNOWN),
        ("", EngineState.UNKNOWN),
    ],
)
def test_every_state_of_either_engine_is_known_or_unknown(word: str, state: EngineState) -> None:
    """A word nobody has seen yet is unknown, on which nothing is removed."""
    assert one(State={"Status": word}).state is state


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-29T12:00:00Z", NOON),
        ("2026-11-29T12:00:00.000000001Z", NOON),
        ("2026-11-29T13:30:00.25+01:30", NOON + 0.25),
        ("2026-11-29T04:00:00-08:00", NOON),
        (NEVER, None),
        ("0001-01-01T00:00:00-07:52", None),
        ("", None),
        (None, None),
    ],
)
def test_times_are_epoch_seconds(text: str | None, seconds: float | None) -> None:
    """Nanoseconds and offsets are read; Go's zero time means never."""
    facts = one(State={"Status": "exited", "FinishedAt": text})
    assert facts.finished == (None if seconds is None else pytest.approx(seconds, abs=1e-6))


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00+99:00", 5],
)
def test_a_time_that_is_none_is_refused(text: object) -> None:
    """A wrong time would make a container older or younger than it is."""
    with pytest.raises(UnreadableAnswer):
        one(Created=text)


def test_a_container_always_has_a_time_of_creation() -> None:
    """Reapers count from it."""
    with pytest.raises(UnreadableAnswer, match="Created"):
        one(Created=NEVER)


def test_running_execs_and_user_are_read() -> None:
    """They tell who uses a container and as whom it runs."""
    facts = one(ExecIDs=["e1", "e2"], Config={"User": "1000:1000", "Labels": None})
    assert (facts.exec_ids, facts.user, facts.labels) == (("e1", "e2"), "1000:1000", {})


def test_podmans_spelling_of_an_image_is_read() -> None:
    """Podman leaves empty settings out, and newer dockers do so too."""
    found = inspected(image(Id="abc", RepoTags=None, Config={"Entrypoint": "tini"}))
    assert found.images == (ImageFacts("abc", (), "", ("tini",)),)
    assert inspected(image(Config=None)).images[0].user == ""


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"Error: something",
        b"{}",
        b"null",
        b"[null]",
        b"[{}]",
        b'["box"]',
        b"[" * 100_000,
        b'[{"Id": "\xff"}]',
        json.dumps([container(Id="")]).encode(),
        json.dumps([container(Name=None)]).encode(),
        json.dumps([container(Image=1)]).encode(),
        json.dumps([container(ExecIDs={})]).encode(),
        json.dumps([container(Config=[])]).encode(),
        json.dumps([container(Config={"Labels": {"a": 1}})]).encode(),
        json.dumps([container(Config={"Labels": 1})]).encode(),
        json.dumps([container(State={})]).encode(),
        json.dumps([container(State={"Status": "running", "Pid": True})]).encode(),
        json.dumps([image(RepoTags=[1])]).encode(),
    ],
    ids=lambda answer: answer[:30].decode(errors="replace"),
)
def test_nonsense_is_never_missing(answer: bytes) -> None:
    """What cannot be read raises; only a well-formed answer can say that something is not there."""
    with pytest.raises(UnreadableAnswer):
        parse_inspect(answer)


def test_nothing_found_is_an_answer() -> None:
    """Inspect prints an empty array then; why is on its standard error."""
    assert parse_inspect(b"[]\n") == Inventory()


DOCKER_LINE = {"ID": "cab2", "Names": "box", "State": "exited", "Labels": "a=b,c=d"}
PODMAN_ITEM = {"Id": "b9d5", "Names": ["box"], "State": "running", "Labels": {"a": "b,c"}}


def test_dockers_list_is_an_object_a_line() -> None:
    """Labels are one text there."""
    lines = "\n".join(json.dumps(DOCKER_LINE | {"ID": number}) for number in "12") + "\n"
    listed = ListedContainer("1", "box", EngineState.EXITED, {"a": "b", "c": "d"})
    assert parse_ps(lines.encode())[0] == listed
    assert [found.id for found in parse_ps(lines.encode())] == ["1", "2"]


def test_podmans_list_is_an_array() -> None:
    """Podman 4.3 takes the format for its own "json" and prints an array over many lines."""
    answer = json.dumps([PODMAN_ITEM, PODMAN_ITEM | {"Labels": None}], indent=2).encode()
    listed = ListedContainer("b9d5", "box", EngineState.RUNNING, {"a": "b,c"})
    assert parse_ps(answer)[0] == listed
    assert parse_ps(answer)[1].labels == {}


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", {}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a=1,2,3,b=4", {"a": "1,2,3", "b": "4"}),
        ("lonely", {"lonely": ""}),
    ],
)
def test_dockers_text_of_labels_is_taken_apart(text: str, labels: dict[str, str]) -> None:
    """A part without "=" is the rest of a value that holds a comma."""
    (listed,) = parse_ps(json.dumps(DOCKER_LINE | {"Labels": text}).encode())
    assert listed.labels == labels


def test_a_containers_own_name_is_told_from_its_links() -> None:
    """Docker lists the names by which others link to a container beside its own."""
    (listed,) = parse_ps(json.dumps(DOCKER_LINE | {"Names": "web/db,box"}).encode())
    assert listed.name == "box"


@pytest.mark.parametrize("answer", [b"", b"\n", b"[]", b"[]\n"])
def test_an_empty_list_is_an_answer(answer: bytes) -> None:
    """Docker prints nothing then, podman an empty array."""
    assert parse_ps(answer) == ()


@pytest.mark.parametrize(
    "answer",
    [b"null", b"[1]", b"oops", b"{}", b"[" * 100_000, b'{"ID": "1", "Names": 5, "State": "dead"}'],
    ids=lambda answer: answer[:30].decode(),
)
def test_a_nonsensical_list_is_refused(answer: bytes) -> None:
    """An unreadable list is not a short one."""
    with pytest.raises(UnreadableAnswer):
        parse_ps(answer)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_readers_raise_only_their_own_error(answer: bytes) -> None:
    """Whatever an engine prints, a caller has one error to expect."""
    for read in (parse_inspect, parse_ps):
        try:
            read(answer)
        except UnreadableAnswer as error:
            assert str(error)  # noqa: PT017


@given(st.dictionaries(st.sampled_from(sorted(container())), JSON))
def test_a_container_with_any_field_changed_is_read_or_refused(changes: dict[str, object]) -> None:
    """The same, near to a real answer."""
    try:
        inspected(container(**changes))
    except UnreadableAnswer as error:
        assert str(error)  # noqa: PT017
