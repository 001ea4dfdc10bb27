"""The live reading, over folders that stand for a system, and once over this one."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbuild.doctor.captured import AptSource, Machine, Mount, Swap
from sparkbuild.doctor.read import disk, gpu, loader
from sparkbuild.doctor.read.apt import deb822, one_line, read_apt
from sparkbuild.doctor.read.memory import read_memory, read_orphans, read_swaps, read_tmpfs
from sparkbuild.doctor.read.network import read_network
from sparkbuild.doctor.read.reader import Reader, meminfo, variable
from sparkbuild.doctor.read.system import (
    read_container,
    read_locale,
    read_openssl,
    read_system,
)
from sparkbuild.doctor_work import examine, named_places
from sparkbuild.manifest import find_recipes
from sparkbuild.workspace import Workspace


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(root=tmp_path)


def put(reader: Reader, path: str, text: str) -> None:
    file = reader.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_what_is_missing_is_none_with_a_reason(reader: Reader) -> None:
    assert reader.text("proc/meminfo", "memory.meminfo") is None
    assert reader.unread == {"memory.meminfo": "/proc/meminfo: No such file or directory"}
    put(reader, "n", "max\n")
    assert reader.number("n", "x") is None
    assert reader.unread["x"] == "/n holds no number"
    put(reader, "n", "-7\n")
    assert reader.number("n") == -7


def test_meminfo_in_bytes_and_counts_as_they_are() -> None:
    text = "MemTotal:       24684096 kB\nHugePages_Total:       3\nActive(anon):  1 kB\njunk\n"
    assert meminfo(text) == {"MemTotal": 24684096 * 1024, "HugePages_Total": 3,
                             "Active(anon)": 1024}  # fmt: skip


def test_a_variable_with_and_without_quotes() -> None:
    text = 'NAME="DGX OS"\nID=ubuntu\nEMPTY=\n'
    assert variable(text, "NAME") == "DGX OS"
    assert variable(text, "ID") == "ubuntu"
    assert variable(text, "EMPTY") is None
    assert variable(None, "ID") is None


def test_swaps_by_kind(reader: Reader) -> None:
    put(
        reader,
        "proc/swaps",
        "Filename\tType\t\tSize\t\tUsed\t\tPriority\n"
        "/dev/zram0                              partition\t6291452\t\t1024\t\t100\n"
        "/swap\\040file                           file\t\t16777212\t0\t\t-2\n"
        "/dev/nvme0n1p3                          partition\t8388604\t0\t\t-3\n",
    )
    assert read_swaps(reader) == (
        Swap(path="/dev/zram0", kind="zram", size=6291452 << 10, used=1 << 20, priority=100),
        Swap(path="/swap file", kind="file", size=16777212 << 10, used=0, priority=-2),
        Swap(path="/dev/nvme0n1p3", kind="partition", size=8388604 << 10, used=0, priority=-3),
    )


def test_what_zram_holds_and_the_kernels_settings(reader: Reader) -> None:
    put(reader, "sys/block/zram0/mm_stat", " 4096 74 12288 0 12288 0 0 0 0\n")
    put(reader, "proc/sys/vm/swappiness", "180\n")
    found = read_memory(reader)
    assert found.zram == 12288
    assert found.swappiness == 180
    assert found.watermark_scale_factor is None
    assert "memory.watermark_scale_factor" in reader.unread


def test_segments_that_nobody_is_attached_to(reader: Reader) -> None:
    head = "       key      shmid perms       size  cpid  lpid nattch   uid\n"
    put(reader, "proc/sysvipc/shm", head + "1 2 1600 1000 5 6 0 0\n2 3 1600 7000 5 6 2 0\n")
    assert read_orphans(reader) == 1000
    put(reader, "proc/sysvipc/shm", head)
    assert read_orphans(reader) == 0


def test_file_systems_in_memory(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    put(
        reader,
        "proc/self/mounts",
        "tmpfs /dev/shm tmpfs rw 0 0\ntmpfs /again tmpfs rw 0 0\ntmpfs /a\\040b tmpfs rw 0 0\n"
        "tmpfs /gone tmpfs rw 0 0\n/dev/sda / ext4 rw 0 0\ntmpfs /empty tmpfs rw 0 0\n",
    )
    devices = {"/dev/shm": 1, "/again": 1, "/a b": 2, "/empty": 3}

    def statvfs(path: str) -> Any:
        if path not in devices:
            raise PermissionError(path)
        free = 100 if path == "/empty" else 25
        return SimpleNamespace(f_blocks=100, f_bfree=free, f_frsize=4096)

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_dev=devices[path]))
    assert read_tmpfs(reader) == (
        Mount(path="/dev/shm", used=75 * 4096),
        Mount(path="/a b", used=75 * 4096),
    )


def test_apt_in_both_formats(reader: Reader) -> None:
    put(
        reader,
        "etc/apt/sources.list.d/cuda.list",
        "# a comment\n"
        "deb [signed-by=/k.gpg arch=arm64] https://u:p@x.example/compute/cuda/repos/u/sbsa/ /\n"
        "#deb https://x.example/compute/cuda/repos/u/arm64/ /\n"
        "deb http://ports.ubuntu.example/ noble main\n",
    )
    put(
        reader,
        "etc/apt/sources.list.d/l4t.sources",
        "# from the image\nTypes: deb\nURIs: https://repo.nvidia.example/jetson/common\n"
        "  https://repo.nvidia.example/jetson/t234\nSuites: r36\n\n"
        "Enabled: no\nTypes: deb\nURIs: https://x.example/compute/cuda/repos/u/arm64/\n",
    )
    lists, stanzas = "/etc/apt/sources.list.d/cuda.list", "/etc/apt/sources.list.d/l4t.sources"
    base = "https://x.example/compute/cuda/repos/u"
    assert read_apt(reader) == (
        AptSource(file=lists, uri=f"{base}/sbsa/"),
        AptSource(file=lists, uri=f"{base}/arm64/", enabled=False),
        AptSource(file=stanzas, uri="https://repo.nvidia.example/jetson/common"),
        AptSource(file=stanzas, uri="https://repo.nvidia.example/jetson/t234"),
        AptSource(file=stanzas, uri=f"{base}/arm64/", enabled=False),
    )


def test_a_system_without_apt(reader: Reader) -> None:
    assert read_apt(reader) is None
    assert "apt" in reader.unread


def test_apt_lines_that_are_none() -> None:
    assert list(one_line("debian\ndeb\ndeb http://a b c\n")) == [("http://a", True)]
    assert list(deb822("URIs\n\n: x\n\nURIs: a\n")) == [("a", True)]


@pytest.mark.parametrize(
    ("files", "variables", "kind"),
    [
        ({}, {}, None),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({"proc/1/cgroup": "0::/kubepods/besteffort/pod1\n"}, {}, "kubepods"),
        ({"proc/1/cgroup": "0::/init.scope\n"}, {}, None),
        ({}, {"container": "lxc"}, "lxc"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
    ],
)
def test_containers(
    reader: Reader, files: dict[str, str], variables: dict[str, str], kind: str | None
) -> None:
    for path, text in files.items():
        put(reader, path, text)
    assert read_container(reader, variables) == kind


def test_openssl_of_both_ages_and_places(reader: Reader) -> None:
    assert read_openssl(reader) is None
    put(reader, "usr/include/aarch64-linux-gnu/openssl/opensslv.h",
        '# define OPENSSL_VERSION_STR "3.0.13"\n')  # fmt: skip
    assert read_openssl(reader) == "3.0.13"
    put(reader, "usr/include/openssl/opensslv.h",
        '#define OPENSSL_VERSION_TEXT    "OpenSSL 1.1.1f  31 Mar 2020"\n')  # fmt: skip
    assert read_openssl(reader) == "1.1.1f"


def test_locales_are_asked_of_the_c_library() -> None:
    assert read_locale({"LANG": "C.UTF-8"}) == ("C.UTF-8", "utf-8")
    assert read_locale({"LC_ALL": "C", "LANG": "C.UTF-8"}) == ("C", "ascii")
    assert read_locale({"LANG": "xx_YY.none"}) == ("xx_YY.none", "unknown")


def test_a_spark_by_its_files(reader: Reader) -> None:
    put(reader, "etc/os-release", 'PRETTY_NAME="Ubuntu 24.04.4 LTS"\n')
    put(reader, "etc/dgx-release", 'DGX_NAME="DGX Spark"\nDGX_SERIAL_NUMBER="1234"\n'
        'DGX_OTA_VERSION="7.2.3"\n')  # fmt: skip
    put(reader, "sys/class/dmi/id/product_name", "NVIDIA_DGX_Spark\n")
    put(reader, "sys/fs/cgroup/memory.max", "max\n")
    put(reader, "sys/fs/cgroup/pids.max", "500\n")
    found = read_system(reader, {"LD_LIBRARY_PATH": "/x", "SECRET": "y", "LANG": "C"})
    assert (found.os, found.product) == ("Ubuntu 24.04.4 LTS", "NVIDIA_DGX_Spark")
    assert found.dgx == "DGX Spark, DGX OS 7.2.3"
    assert (found.memory_limit, found.process_limit) == (None, 500)
    assert found.variables == {"LD_LIBRARY_PATH": "/x"}
    assert found.clock is not None
    assert set(found.limits) == {"memlock", "nofile", "nproc"}


VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build\n"


def nvml(**changes: Any) -> SimpleNamespace:
    """A library that answers as GB10's does: no memory figure, two processes."""

    class NVMLError(Exception):
        pass

    def unsupported(*_: Any) -> Any:
        raise NVMLError("Not Supported")

    both = SimpleNamespace(pid=7, usedGpuMemory=1 << 30)
    plain: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda number: number,
        "nvmlDeviceGetName": lambda _: "NVIDIA GB10",
        "nvmlDeviceGetCudaComputeCapability": lambda _: (12, 1),
        "nvmlDeviceGetMemoryInfo": unsupported,
        "nvmlDeviceGetPowerUsage": lambda _: 4512,
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=3, memory=0),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [both],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [
            both, SimpleNamespace(pid=9, usedGpuMemory=None)
        ],
        "nvmlSystemGetProcessName": lambda pid: f"/home/somebody/bin/program{pid} --key secret",
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **changes})


def importable(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library)


def test_a_gb10_has_no_memory_figure(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    put(reader, "proc/driver/nvidia/version", VERSION)
    importable(monkeypatch, nvml())
    found = gpu.read_gpu(reader)
    assert (found.driver, found.cuda) == ("580.142", 13000)
    (one,) = found.devices
    assert (one.name, one.capability, one.memory) == ("NVIDIA GB10", (12, 1), None)
    assert (one.power, one.utilisation) == (4.512, 3)
    assert [(each.program, each.memory) for each in one.processes or ()] == [
        ("program7", 1 << 30),
        ("program9", None),
    ]
    assert reader.unread == {"gpu.memory": "NVML: Not Supported"}


def test_without_nvml_there_are_names_alone(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise OSError("no libnvidia-ml.so.1")

    put(reader, "proc/driver/nvidia/version", VERSION)
    put(reader, "proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA GB10\n")
    importable(monkeypatch, nvml(nvmlInit=fails))
    found = gpu.read_gpu(reader)
    assert found.driver == "580.142"
    assert [one.name for one in found.devices] == ["NVIDIA GB10"]
    assert reader.unread["gpu.power"] == "NVML: no libnvidia-ml.so.1"


def test_a_driver_that_hangs_is_left_alone(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    put(reader, "proc/driver/nvidia/version", VERSION)
    monkeypatch.setattr(gpu, "_SECONDS", 0.05)
    importable(monkeypatch, nvml(nvmlDeviceGetCount=partial(time.sleep, 1.0)))
    started = time.monotonic()
    assert gpu.read_gpu(reader).devices == ()
    assert time.monotonic() - started < 0.9
    assert "no answer within" in reader.unread["gpu"]


def test_without_a_driver_nvml_is_not_asked(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    importable(monkeypatch, None)  # an import would fail, and the reason be kept
    assert gpu.read_gpu(reader).driver is None
    assert not reader.unread


CACHE = """\
312 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,AArch64) => /lib/aarch64-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1
\tlibcudart.so.13 (libc6,AArch64) => /usr/local/cuda/lib64/libcudart.so.13
\tlibcudart.so (libc6,AArch64) => /usr/local/cuda/lib64/libcudart.so
\tlibm.so.6 (libc6,AArch64, OS ABI: Linux 3.7.0) => /lib/aarch64-linux-gnu/libm.so.6
\tlibggml-cuda.so (libc6,AArch64) => /usr/local/lib/libggml-cuda.so
"""


def test_the_loaders_cache_for_one_architecture() -> None:
    found = dict(loader.in_cache(CACHE, "aarch64"))
    assert {name: str(path) for name, path in found.items()} == {
        "libcuda.so.1": "/lib/aarch64-linux-gnu/libcuda.so.1",
        "libcudart.so.13": "/usr/local/cuda/lib64/libcudart.so.13",
        "libggml-cuda.so": "/usr/local/lib/libggml-cuda.so",
    }


def test_a_folder_of_the_path_comes_before_the_cache(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.580").touch()
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.580")
    (tmp_path / "libother.so").touch()
    found = loader.read_libraries(Reader(), "x86_64", {"LD_LIBRARY_PATH": f"/none:{tmp_path}"})
    cuda = next(one for one in found or () if one.soname == "libcuda.so.1")
    assert cuda.through == "LD_LIBRARY_PATH"
    assert cuda.path == str(tmp_path / "libcuda.so.580")
    assert "libother.so" not in {one.soname for one in found or ()}


def test_a_file_that_is_there_is_read_past_the_cache(tmp_path: Path) -> None:
    large = 80 << 20
    (tmp_path / "model.gguf").write_bytes(b"\1" * large)
    found = disk.measure(Reader(), tmp_path, free=0, most=large)
    assert found is not None
    assert (found.bytes, found.file) == (large, "existing")
    assert found.seconds > 0
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_a_file_is_made_read_and_removed(tmp_path: Path) -> None:
    found = disk.measure(Reader(), tmp_path, free=1 << 40, most=64 << 20)
    assert found is not None
    assert (found.bytes, found.file) == (64 << 20, "temporary")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_not_written_to(tmp_path: Path) -> None:
    reader = Reader()
    assert disk.measure(reader, tmp_path, free=1 << 30) is None
    assert reader.unread == {"disks.speed": "too little room for a file to read"}


def test_a_read_ends_after_its_time(tmp_path: Path) -> None:
    reader = Reader()
    (tmp_path / "model.gguf").write_bytes(b"\1" * (80 << 20))
    assert disk.measure(reader, tmp_path, free=0, most=80 << 20, seconds=0.0) is None
    assert "only 0 bytes" in reader.unread["disks.speed"]


def test_each_file_system_once_and_the_work_folders_first(tmp_path: Path) -> None:
    work = tmp_path / "not" / "yet"
    found = disk.read_disks(Reader(), [tmp_path, Path("/none/such")], work=work)
    assert found[0].folder == str(work)
    assert found[0].size >= found[0].free > 0
    assert not work.exists()
    assert len({one.folder for one in found}) == len(found)


def test_places_that_answer_and_that_do_not(tmp_path: Path) -> None:
    import http.server
    import threading

    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if "good" in self.path else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    base = f"http://127.0.0.1:{server.server_port}"
    try:
        found = read_network(
            {
                "index": f"{base}/good/",
                "git": f"git+{base}/good.git",
                "gone": f"{base}/bad/",
                "closed": "http://127.0.0.1:9/",
                "folder": str(tmp_path),
                "no folder": str(tmp_path / "none"),
                "ssh": "ssh://x.example/a",
                "nonsense": "http://[",
            }
        )
    finally:
        server.shutdown()
        server.server_close()
    assert {one.place: one.reached for one in found} == {
        "index": True, "git": True, "gone": False, "closed": False, "folder": True,
        "no folder": False, "ssh": False, "nonsense": False,
    }  # fmt: skip
    assert "/good.git/info/refs?service=git-upload-pack" in asked
    assert next(one for one in found if one.place == "gone").problem == "HTTP 404"


def test_the_recipes_name_repositories_and_the_index() -> None:
    places = named_places(find_recipes(None))
    assert "package index" in places
    assert any(address.startswith("git+https://") for address in places.values())


@pytest.fixture(scope="module")
def this_machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    work = tmp_path_factory.mktemp("doctor") / "work"
    told: list[str] = []
    machine = examine(find_recipes(None), Workspace(work), offline=True, tell=told.append)
    assert told
    assert not work.exists(), "a work folder was made"
    return machine


def test_this_machine_is_read(this_machine: Machine) -> None:
    assert this_machine.origin == "read"
    assert this_machine.memory.meminfo["MemTotal"] > 0
    assert this_machine.system.kernel == os.uname().release
    assert this_machine.network is None
    assert this_machine.unread["network"] == "--offline"
    assert this_machine.toolkits.cmake
    assert this_machine.disks


def test_the_sum_of_this_machines_memory_comes_out(this_machine: Machine) -> None:
    """What nobody holds is little, and not less than nothing, on a machine in good health."""
    from sparkbuild.doctor.checks.memory import held_by_nobody

    total = this_machine.memory.meminfo["MemTotal"]
    assert 0 <= held_by_nobody(this_machine) < total // 5
