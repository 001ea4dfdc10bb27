"""Imports flow one way, and one module opens the door to other programs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import sparkbuild

PACKAGE = Path(sparkbuild.__file__).parent
BASE = {
    "__init__", "errors", "fatbin", "files", "llama", "manifest", "model", "net", "process",
    "schema", "workspace",
}  # fmt: skip
ROOMS = [
    "toolkit",
    "source",
    "qualify",
    "build",
    "canary",
    "smoke",
    "package",
    "doctor",
    "faults",
    "history",
    "nightly",
    "report",
]
ABOVE = ["stages", "canary_desk", "canary_drafting", "canary_work", "canary_answers",
         "smoke_before", "smoke_pool", "smoke_work", "smoke_served", "smoke_ops_program",
         "smoke_ops", "smoke_make", "job", "qualify_work", "qualify_gpu_work", "tree_stages",
         "build_stages", "wheel_remake", "wheel_rebuild", "pipeline", "run", "live", "console",
         "toolkit_commands",
         "canary_commands", "canary_maker_commands", "model_options", "inspect_seen",
         "inspect_toolkit", "inspect_binary", "inspect_work", "model_commands",
         "smoke_ops_commands",
         "smoke_served_commands", "smoke_commands", "qualify_meant", "qualify_commands",
         "key_commands",
         "wheel_compare_commands", "wheel_rebuild_commands", "wheel_commands",
         "patch_talk", "patch_bench", "patch_build", "patch_proof", "patch_work", "patch_refresh",
         "patch_commands", "faults_one", "faults_cuda", "faults_work", "faults_commands",
         "doctor_work", "doctor_commands",
         "history_commands", "site_work", "report_commands", "faults_report_commands",
         "nightly_order", "nightly_keep", "nightly_step", "nightly_fresh", "nightly_upstream",
         "nightly_release", "nightly_work", "nightly_propose", "nightly_tell", "nightly_commands",
         "bisect_ground", "bisect_work", "bisect_keep", "bisect_make", "bisect_commands",
         "cli",
         "__main__"]  # fmt: skip
BASE_ORDER = [
    "__init__", "errors", "files", "process", "model", "schema", "manifest", "workspace", "net",
    "llama", "fatbin",
]  # fmt: skip
MAX_FUNCTION_LINES = 60
MAX_MODULE_LINES = 350


def modules() -> Iterator[tuple[str, ast.Module, Path]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        if "template" in parts:
            continue
        yield ".".join(parts), ast.parse(file.read_text()), file


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names)


def inner(names: Iterator[str]) -> Iterator[list[str]]:
    for name in names:
        parts = name.split(".")
        if parts[0] == "sparkbuild" and len(parts) > 1:
            yield parts[1:]


def test_base_modules_import_only_what_is_below_them() -> None:
    for name, tree, _ in modules():
        base = name.partition(".")[0]
        if base in BASE:
            allowed = BASE_ORDER[: BASE_ORDER.index(base)]
            own = [base] if "." in name else []
            for parts in inner(imported(tree)):
                assert parts[0] in [*allowed, *own, "__version__"], f"{name} imports {parts}"


def test_rooms_know_the_base_themselves_and_earlier_results() -> None:
    for name, tree, _ in modules():
        room, _, rest = name.partition(".")
        if room not in ROOMS:
            continue
        for parts in inner(imported(tree)):
            if parts[0] in BASE or parts[0] in {room, "__version__"}:
                continue
            assert parts[0] in ROOMS[: ROOMS.index(room)], f"{name} imports {parts}"
            assert len(parts) > 1, f"{name} imports the whole of {parts}"
            assert parts[1] == "model", f"{name} imports a function of {parts}"
        if rest in {"model", "__init__"}:
            heavy = {"git", "httpx", "numpy", "gguf", "elftools", "pypi_simple", "junitparser"}
            assert not heavy & {part.split(".")[0] for part in imported(tree)}, name


def test_nothing_below_imports_the_pipeline() -> None:
    for name, tree, _ in modules():
        if name in ABOVE:
            continue
        for parts in inner(imported(tree)):
            if parts[0] == "stages":
                continue
            assert parts[0] not in ABOVE, f"{name} imports {parts}"


def test_what_stands_above_the_rooms_imports_one_way() -> None:
    for name, tree, _ in modules():
        if name not in ABOVE:
            continue
        for parts in inner(imported(tree)):
            if parts[0] in ABOVE:
                assert ABOVE.index(parts[0]) < ABOVE.index(name), f"{name} imports {parts}"


def test_functions_and_modules_stay_readable() -> None:
    for name, tree, file in modules():
        assert len(file.read_text().splitlines()) <= MAX_MODULE_LINES, name
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= MAX_FUNCTION_LINES, f"{name}.{node.name} has {lines} lines"


def test_only_process_starts_programs_and_only_the_command_line_exits() -> None:
    for name, tree, _ in modules():
        names = {part.split(".")[0] for part in imported(tree)}
        assert ("subprocess" in names) == (name == "process"), name
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if name != "cli":
            assert not calls & {"sys.exit", "exit", "quit", "os._exit", "print"}, name
        assert not calls & {"os.system", "os.popen", "eval", "exec"}, name
