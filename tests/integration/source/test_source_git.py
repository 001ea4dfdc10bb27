"""Sources from git repositories of every kind, friendly, moved, broken and hostile."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import threading
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkbuild.errors import (
    BusyError,
    HostError,
    SourceMismatchError,
    SourceUnavailableError,
)
from sparkbuild.manifest import GitOrigin
from sparkbuild.source import git_origin
from sparkbuild.source.gitdoor import GitFailedError
from sparkbuild.source.store import Store
from sparkbuild.source.verify import verify

if TYPE_CHECKING:
    from source.conftest import Index, Lab, Upstream

Digest = Callable[..., str]
EXTRA = {"README.md": b"not declared\n", "docs/x": b"neither\n"}


@pytest.fixture
def published(upstream: Upstream, tiny: dict[str, bytes]) -> Upstream:
    upstream.commit({**tiny, **EXTRA})
    upstream.tag("b1")
    return upstream


@pytest.fixture
def by_tag(lab: Lab, published: Upstream, tree: Digest, tiny: dict[str, bytes]) -> Lab:
    lab.write({"kind": "git", "url": published.url, "tag": "b1"}, digest=tree(tiny))
    return lab


def test_a_tag_with_the_right_content_is_pinned(
    by_tag: Lab, tree: Digest, tiny: dict[str, bytes]
) -> None:
    source = by_tag.obtain()
    assert source.digest == tree(tiny)
    assert source.origin == f"git {by_tag.root / 'upstream'} tag b1"
    assert source.warnings == ()
    assert Store(by_tag.store).pinned(source.digest) == source.commit


def test_the_same_content_is_the_same_commit_on_every_machine(by_tag: Lab) -> None:
    """These ids are in reports and wheels in the world: they may not change between releases."""
    source = by_tag.obtain()
    assert source.tree == "2e391cc2d0fd0a147ad808d2bb105ef704768d4f"
    assert source.commit == "444c505965f7f08a8d35a135ad8a675595a38529"


def test_the_second_run_needs_no_origin(by_tag: Lab, published: Upstream) -> None:
    first = by_tag.obtain()
    shutil.rmtree(published.root)
    second = by_tag.obtain()
    assert second.origin == "store"
    assert (second.commit, second.digest, second.tree) == (first.commit, first.digest, first.tree)


def test_the_second_run_loads_no_git(by_tag: Lab) -> None:
    import json
    import subprocess  # noqa: TID251 - a fresh interpreter shows what is loaded

    by_tag.prepare()
    done = subprocess.run(by_tag.driver(), capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["origin"] == "store"
    assert answer["loaded"] == []


def test_packing_the_store_loses_nothing(by_tag: Lab, published: Upstream) -> None:
    first = by_tag.obtain()
    published.git("gc", "--quiet", "--prune=now", at=by_tag.store)
    assert not (by_tag.store / "refs" / "pins" / first.digest).exists()
    assert by_tag.obtain().commit == first.commit
    assert verify(by_tag.patchset.source, by_tag.manifest, by_tag)["files"] == 7


def test_a_tag_moved_by_a_force_push_is_refused(
    by_tag: Lab, published: Upstream, tree: Digest, tiny: dict[str, bytes]
) -> None:
    changed = {**tiny, "src/a.c": b"int a(void) { return 2; }\n"}
    published.commit({"src/a.c": changed["src/a.c"]})
    published.tag("b1")
    with pytest.raises(SourceMismatchError, match="tag b1 is not the source") as refusal:
        by_tag.obtain()
    expected, found = refusal.value.problems
    assert tree(tiny) in expected
    assert tree(changed) in found
    assert "7 files" in found
    assert Store(by_tag.store).pinned(tree(changed)) is None


def test_a_pin_in_the_store_outlives_the_force_push(by_tag: Lab, published: Upstream) -> None:
    first = by_tag.obtain()
    published.commit({"src/a.c": b"evil"})
    published.tag("b1")
    assert by_tag.obtain().commit == first.commit


def test_a_mismatch_ends_the_search(
    lab: Lab, published: Upstream, tree: Digest, tiny: dict[str, bytes]
) -> None:
    published.commit({"src/a.c": b"evil"})
    good = published.root.parent / "good"
    published.mirror(good)
    published.tag("b1")
    tag = {"kind": "git", "tag": "b1"}
    lab.write({**tag, "url": published.url}, {**tag, "url": str(good)}, digest=tree(tiny))
    with pytest.raises(SourceMismatchError):
        lab.obtain()


def test_an_unreachable_origin_is_a_warning_that_names_it(
    lab: Lab, published: Upstream, tree: Digest, tiny: dict[str, bytes]
) -> None:
    gone = str(lab.root / "gone.git")
    tag = {"kind": "git", "tag": "b1"}
    lab.write({**tag, "url": gone}, {**tag, "url": published.url}, digest=tree(tiny))
    source = lab.obtain()
    assert len(source.warnings) == 1
    assert source.warnings[0].startswith(f"git {gone} tag b1: ")
    assert lab.watcher.notes == [f"cannot use {source.warnings[0]}"]
    assert lab.obtain().warnings == ()


def test_where_nothing_answers_every_origin_is_named_with_its_reason(
    lab: Lab, published: Upstream, tree: Digest, tiny: dict[str, bytes]
) -> None:
    lab.write(
        {"kind": "git", "url": str(lab.root / "gone.git"), "tag": "b1"},
        {"kind": "git", "url": published.url, "tag": "b2"},
        {"kind": "path", "path": "../nowhere"},
        digest=tree(tiny),
    )
    with pytest.raises(SourceUnavailableError) as refusal:
        lab.obtain()
    gone, no_tag, nowhere = refusal.value.problems
    assert "gone.git" in gone
    assert "refs/tags/b2" in no_tag
    assert "nowhere is not a folder" in nowhere
    assert str(lab.manifest) in refusal.value.next_step


def test_git_folder_and_archive_give_the_same_digest_and_commit(
    lab: Lab,
    published: Upstream,
    serve: Callable[..., Index],
    tree: Digest,
    tiny: dict[str, bytes],
    tmp_path: Path,
) -> None:
    """Each holds other undeclared files."""
    published.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "plain"))
    for name, data in tiny.items():  # the checkout went through .gitattributes
        if name[-1] not in "@*":
            (tmp_path / "plain" / name).write_bytes(data)
    (tmp_path / "plain" / "PKG-INFO").write_bytes(b"undeclared")
    index = serve({**tiny, "setup.py": b"undeclared"})
    origins: list[dict[str, object]] = [
        {"kind": "git", "url": published.url, "tag": "b1"},
        {"kind": "path", "path": str(tmp_path / "plain")},
        {"kind": "path", "path": str(published.mirror(tmp_path / "mirror.git"))},
        index.origin(),
    ]
    commits = set()
    for number, origin in enumerate(origins):
        place = type(lab)(tmp_path / str(number))
        place.write(origin, digest=tree(tiny))
        commits.add(place.obtain().commit)
    assert len(commits) == 1


@pytest.mark.parametrize("form", ["path", "file url", "relative path"])
def test_a_bare_mirror_is_named_by_path_or_address(
    lab: Lab, published: Upstream, tree: Digest, tiny: dict[str, bytes], form: str
) -> None:
    mirror = published.mirror(lab.root / "a mirror.git")
    url = {
        "path": str(mirror),
        "file url": f"file://{str(mirror).replace(' ', '%20')}",
        "relative path": os.path.relpath(mirror, lab.manifest.parent),
    }[form]
    lab.write({"kind": "git", "url": url, "tag": "b1"}, digest=tree(tiny))
    assert lab.obtain().digest == tree(tiny)


def test_a_full_commit_is_fetched_though_no_branch_holds_it(
    lab: Lab, upstream: Upstream, tiny: dict[str, bytes], tree: Digest
) -> None:
    commit = upstream.commit(tiny)
    upstream.git("commit", "--quiet", "--amend", "--allow-empty", "--message", "rewritten")
    lab.write({"kind": "git", "url": upstream.url, "commit": commit})
    source = lab.obtain()
    assert source.digest == tree(tiny)
    assert source.build is None
    shutil.rmtree(upstream.root)
    assert lab.obtain().origin == "store"


def test_other_declared_paths_of_a_commit_are_another_source(
    lab: Lab, upstream: Upstream, tiny: dict[str, bytes], tree: Digest
) -> None:
    commit = upstream.commit(tiny)
    origin = {"kind": "git", "url": upstream.url, "commit": commit}
    lab.write(origin)
    lab.obtain()
    lab.write(origin, paths=["src"])
    assert lab.obtain().digest == tree({k: v for k, v in tiny.items() if k.startswith("src/")})


def test_an_abbreviated_commit_stands_for_one_of_its_branch(
    lab: Lab, upstream: Upstream, tiny: dict[str, bytes], tree: Digest
) -> None:
    commit = upstream.commit(tiny)
    upstream.git("branch", "side")
    for number in range(3):
        upstream.commit({"src/a.c": b"%d" % number})
    origin = {"kind": "git", "url": upstream.url, "commit": commit[:10], "branch": "main"}
    lab.write(origin)
    assert lab.obtain().digest == tree(tiny)
    shutil.rmtree(upstream.root)
    assert lab.obtain().origin == "store"


def test_an_abbreviated_commit_of_another_branch_is_refused(
    lab: Lab, upstream: Upstream, tiny: dict[str, bytes]
) -> None:
    upstream.commit(tiny)
    upstream.git("branch", "side")
    commit = upstream.commit({"src/a.c": b"only on main"})
    lab.write({"kind": "git", "url": upstream.url, "commit": commit[:10], "branch": "side"})
    with pytest.raises(SourceMismatchError, match="no commits of branch side begin with"):
        lab.obtain()


def test_an_abbreviation_that_fits_two_commits_is_refused_with_both(
    lab: Lab, upstream: Upstream
) -> None:
    """Seventeen commits: two begin with the same digit."""
    commits = [upstream.commit({"src/a.c": b"%d" % number}) for number in range(17)]
    digits = [commit[0] for commit in commits]
    digit = next(digit for digit in digits if digits.count(digit) > 1)
    origin = GitOrigin(url=upstream.url, commit=digit, branch="main")
    remote = git_origin.Remote(upstream.url, lab.root)
    with pytest.raises(SourceMismatchError, match="commits of branch main begin with") as refusal:
        git_origin._complete(origin, remote)
    assert set(refusal.value.problems) == {one for one in commits if one[0] == digit}


def test_a_server_that_serves_no_single_commits_is_asked_for_the_branch(
    lab: Lab, upstream: Upstream, tiny: dict[str, bytes], tree: Digest
) -> None:
    """A plain file server: git's dumb protocol knows neither depth nor commits by id."""
    commit = upstream.commit(tiny)
    upstream.commit({"src/a.c": b"newer"})
    mirror = upstream.mirror(lab.root / "www" / "mirror.git")
    upstream.git("update-server-info", at=mirror)
    handler = functools.partial(_Quiet, directory=str(mirror.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mirror.git"
        lab.write({"kind": "git", "url": url, "commit": commit, "branch": "main"})
        assert lab.obtain().digest == tree(tiny)
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_declaring_the_same_content_in_other_words_needs_no_origin(
    by_tag: Lab, published: Upstream, tree: Digest, tiny: dict[str, bytes]
) -> None:
    first = by_tag.obtain()
    shutil.rmtree(published.root)
    paths = [name.rstrip("*@") for name in tiny]
    by_tag.write({"kind": "path", "path": "gone"}, digest=tree(tiny), paths=paths)
    assert by_tag.obtain().commit == first.commit


def test_declaring_more_than_the_digest_covers_is_refused(
    by_tag: Lab, published: Upstream, tree: Digest, tiny: dict[str, bytes]
) -> None:
    by_tag.obtain()
    paths = ["CMakeLists.txt", "src", "run.sh", "link", "README.md"]
    by_tag.write({"kind": "git", "url": published.url, "tag": "b1"}, digest=tree(tiny), paths=paths)
    with pytest.raises(SourceMismatchError):
        by_tag.obtain()


def test_a_declared_path_that_is_missing_is_refused(
    lab: Lab, published: Upstream, tiny: dict[str, bytes]
) -> None:
    commit = published.git("rev-parse", "HEAD")
    origin = {"kind": "git", "url": published.url, "commit": commit}
    lab.write(origin, paths=["src", "no/such", "nor.this"])
    with pytest.raises(SourceMismatchError) as refusal:
        lab.obtain()
    assert "declared path missing: no/such" in refusal.value.problems
    assert "declared path missing: nor.this" in refusal.value.problems


def test_a_submodule_is_refused_where_it_is_declared_only(
    lab: Lab, upstream: Upstream, tiny: dict[str, bytes]
) -> None:
    upstream.commit(tiny)
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},src/sub")
    upstream.git("commit", "--quiet", "--message", "submodule")
    origin = {"kind": "git", "url": upstream.url, "commit": upstream.git("rev-parse", "HEAD")}
    lab.write(origin, paths=["run.sh"])
    lab.obtain()
    lab.write(origin)
    with pytest.raises(SourceMismatchError, match="submodules") as refusal:
        lab.obtain()
    assert refusal.value.problems == ("submodule: src/sub",)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"120000 evil\0", "link out of the tree"),
        (b"100644 ..\0", "climbs out"),
        (b"100644 .git\0", ".git"),
        (b"100644 a\\b\0", "backslash"),
        (b"100644 \xff\0", "UTF-8"),
    ],
)
def test_a_tree_made_by_hand_to_do_harm_is_refused(
    lab: Lab, upstream: Upstream, line: bytes, reason: str
) -> None:
    upstream.commit({"x": b"x"})
    blob = bytes.fromhex(upstream.git("hash-object", "-w", "--stdin", stdin=b"../../etc/passwd"))
    hash_tree = ("hash-object", "-t", "tree", "-w", "--literally", "--stdin")
    inner = bytes.fromhex(upstream.git(*hash_tree, stdin=line + blob))
    outer = upstream.git(*hash_tree, stdin=b"40000 src\0" + inner)
    commit = upstream.git("commit-tree", "-m", "evil", outer)
    upstream.git("update-ref", "refs/heads/evil", commit)
    lab.write({"kind": "git", "url": upstream.url, "commit": commit}, paths=["src"])
    with pytest.raises(SourceMismatchError, match="holds what no source may") as refusal:
        lab.obtain()
    assert reason in refusal.value.problems[0]


def test_an_address_cannot_run_a_command(lab: Lab, tiny: dict[str, bytes], tree: Digest) -> None:
    proof = lab.root / "pwned"
    for url in (f"ext::sh -c touch% {proof}", f"--upload-pack=touch {proof}"):
        origin = {"kind": "git", "url": url, "tag": "b1"}
        if url.startswith("-"):
            pin = GitOrigin(url=url, tag="b1")
            remote = git_origin.Remote(pin.url, lab.root)
            with pytest.raises(GitFailedError):
                remote.answer()
        else:
            lab.write(origin, digest=tree(tiny))
            with pytest.raises(SourceUnavailableError):
                lab.obtain()
    assert not proof.exists()


def test_the_users_own_git_setup_has_no_say(
    by_tag: Lab,
    published: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    tree: Digest,
    tiny: dict[str, bytes],
) -> None:
    home = by_tag.root / "home"
    (home / "hooks").mkdir(parents=True)
    hook = home / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {home}/hook-ran\n")
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[core]\nhooksPath = {home}/hooks\nautocrlf = true\n"
        f'[url "/nowhere/"]\ninsteadOf = {published.root.parent}/\n'
        "[init]\ndefaultObjectFormat = sha256\n[fetch]\nfsckObjects = true\nprune = true\n"
        "[commit]\ngpgSign = true\n"
    )
    monkeypatch.setenv("HOME", str(home))
    for name, value in {
        "GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere", "GIT_OBJECT_DIRECTORY": "/nowhere",
        "GIT_WORK_TREE": "/nowhere", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "maybe", "GIT_NAMESPACE": "n", "GIT_DEFAULT_HASH": "sha256",
        "GIT_TRACE": "1", "GIT_ALLOW_PROTOCOL": "none",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    made = by_tag.prepare()
    assert made.source_digest == tree(tiny)
    assert (Path(made.directory) / "src/deep/b.c").read_bytes() == tiny["src/deep/b.c"]
    assert not (home / "hook-ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to another user")
def test_a_mirror_of_another_user_is_read(
    lab: Lab, published: Upstream, tree: Digest, tiny: dict[str, bytes]
) -> None:
    mirror = published.mirror(lab.root / 'other"s mirror.git')
    for folder, _, names in os.walk(mirror):
        for name in ("", *names):
            os.chown(Path(folder) / name, 65534, 65534)
    lab.write({"kind": "git", "url": str(mirror), "tag": "b1"}, digest=tree(tiny))
    assert lab.obtain().digest == tree(tiny)


def test_a_password_in_an_address_is_never_shown(
    lab: Lab, tree: Digest, tiny: dict[str, bytes]
) -> None:
    url = "http://user:hunter2@127.0.0.1:9/x.git"
    lab.write({"kind": "git", "url": url, "tag": "b1"}, digest=tree(tiny))
    with pytest.raises(SourceUnavailableError) as refusal:
        lab.obtain()
    shown = " ".join([*refusal.value.problems, *lab.watcher.notes, refusal.value.next_step])
    assert "127.0.0.1:9" in shown
    assert "hunter2" not in shown


def _damage(store: Path, how: str) -> None:
    pack = next(store.glob("objects/pack/*.pack"))
    pack.chmod(0o644)
    data = bytearray(pack.read_bytes())
    if how == "cut off":
        pack.write_bytes(data[: len(data) // 2])
    elif how == "a changed byte":
        data[len(data) // 2] ^= 0xFF
        pack.write_bytes(data)
    else:
        pack.unlink()


@pytest.mark.parametrize("how", ["cut off", "a changed byte", "gone"])
def test_a_damaged_store_is_noticed_and_the_way_out_works(by_tag: Lab, how: str) -> None:
    first = by_tag.obtain()
    _damage(by_tag.store, how)
    with pytest.raises(SourceMismatchError, match="is damaged") as refusal:
        verify(by_tag.patchset.source, by_tag.manifest, by_tag)
    assert refusal.value.next_step.startswith(f"mv {by_tag.store} {by_tag.store}.damaged")
    with pytest.raises(SourceMismatchError, match="is damaged"):
        by_tag.prepare()
    assert not list(by_tag.sources.glob("*"))
    by_tag.store.rename(f"{by_tag.store}.damaged")
    assert by_tag.obtain().commit == first.commit
    assert verify(by_tag.patchset.source, by_tag.manifest, by_tag)["commit"] == first.commit


def test_verify_gives_the_facts(by_tag: Lab, tiny: dict[str, bytes]) -> None:
    with pytest.raises(SourceUnavailableError) as refusal:
        verify(by_tag.patchset.source, by_tag.manifest, by_tag)
    assert refusal.value.next_step == "sparkbuild source fetch --variant tiny"
    source = by_tag.obtain()
    facts = verify(by_tag.patchset.source, by_tag.manifest, by_tag)
    assert facts["digest"] == source.digest
    assert facts["commit"] == source.commit
    assert facts["tree"] == source.tree
    assert facts["files"] == len(tiny)
    assert facts["bytes"] == sum(map(len, tiny.values()))


def test_a_store_in_use_is_busy_not_broken(by_tag: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkbuild.source.store.LOCK_SECONDS", 0.1)
    with Store(by_tag.store).writing("something"), pytest.raises(BusyError):
        by_tag.obtain()


def test_a_store_that_is_none_is_refused_with_a_way_out(by_tag: Lab) -> None:
    by_tag.store.mkdir(parents=True)
    (by_tag.store / "HEAD").write_text("nonsense")
    with pytest.raises(HostError, match="git cannot use the store") as refusal:
        by_tag.obtain()
    assert "not a git repository" in refusal.value.problems[0]
    assert refusal.value.next_step.startswith("mv ")


def test_without_git_the_refusal_says_how_to_get_it(
    by_tag: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(by_tag.root))
    with pytest.raises(HostError, match="git is missing") as refusal:
        by_tag.obtain()
    assert "apt install git" in refusal.value.next_step


def test_a_server_that_never_answers_is_given_up(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tree: Digest, tiny: dict[str, bytes]
) -> None:
    monkeypatch.setattr(git_origin, "_ANSWER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/x.git"
        lab.write({"kind": "git", "url": url, "tag": "b1"}, digest=tree(tiny))
        with pytest.raises(SourceUnavailableError) as refusal:
            lab.obtain()
    assert "no end within 1 s" in refusal.value.problems[0]


def test_a_tags_own_id_is_not_taken_for_a_commit(lab: Lab, published: Upstream) -> None:
    tag = published.git("rev-parse", "refs/tags/b1")
    assert published.git("cat-file", "-t", tag) == "tag"
    lab.write({"kind": "git", "url": published.url, "commit": tag})
    with pytest.raises(SourceUnavailableError) as refusal:
        lab.obtain()
    assert "is a tag's id" in refusal.value.problems[0]


def test_a_socket_in_a_folder_is_refused(lab: Lab, tiny: dict[str, bytes], tree: Digest) -> None:
    place = lab.root / "plain"
    (place / "src").mkdir(parents=True)
    os.mkfifo(place / "src" / "pipe")
    lab.write({"kind": "path", "path": "../../plain"}, digest=tree(tiny), paths=["src"])
    with pytest.raises(SourceMismatchError) as refusal:
        lab.obtain()
    assert refusal.value.problems == ("neither file, folder nor link: src/pipe",)


def test_a_folder_behind_a_link_counts_as_missing(lab: Lab, tree: Digest) -> None:
    place = lab.root / "plain"
    place.mkdir()
    (lab.root / "outside").mkdir()
    (lab.root / "outside" / "x").write_bytes(b"secret")
    (place / "src").symlink_to("../outside")
    lab.write({"kind": "path", "path": str(place)}, digest=tree({}), paths=["src/x"])
    with pytest.raises(SourceMismatchError) as refusal:
        lab.obtain()
    assert "declared path missing: src/x" in refusal.value.problems
