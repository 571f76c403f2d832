#!/usr/bin/env python3
"""Proves that rooms include each other only as the design's table allows.

  check_rooms.py [ROOT]      checks the tree; prints each offending line; exit status 1 when there is one
  check_rooms.py --self-test plants one violation of each kind in a small tree and sees it found

The table below is the design's; every room may include base, its own files and the standard library. Further rules:
a backend's folder (device/cpu, kernels/cpu) is known to that backend, to the registry beside it, and to the tests of
device and kernels alone, but for its list of kernel tables (kernels/cpu/cpu_kernels.h); what is named *_test* is for
tests; CUDA and Vulkan headers stay in device/<backend>/ and kernels/<backend>/; heavy third-party headers stay out of
our headers; quoted includes are written from src/ (in tools, bench, tests and fuzz also from the own folder); neither
rooms nor files include each other in a circle.
"""
import pathlib
import re
import sys
import tempfile

# What front ends see of runtime, and what they share with it.
FRONT = ["runtime/engine.h", "runtime/context.h", "runtime/embedding.h", "runtime/generate.h", "runtime/sampler.h",
         "runtime/sampler_grammar.h", "runtime/sampler_json.h", "runtime/sampler_options.h", "runtime/serving.h",
         "runtime/live_placement.h", "runtime/split_policy.h", "runtime/stop.h", "runtime/fit.h", "runtime/cache_types.h",
         "tokenizer"]
# room: what it may include. "x" is a whole room, "x/y.h" one header. Rooms are the longest matching folder of src/.
ALLOWED = {
    "base": [],
    "tensor": [],
    "tokenizer": [],
    "residency": [],
    "gguf": ["tensor"],
    "device": ["tensor"],
    "media": ["tensor"],
    "kernels": ["tensor", "device"],
    "placement": ["tensor"],
    "memory": ["tensor", "device", "placement"],
    "transition": ["placement", "memory", "kernels", "gguf", "device", "tensor"],
    "program/build": ["tensor"],
    "program/lower": ["program/build", "placement", "memory", "kernels", "device", "tensor"],
    "models": ["gguf", "tensor", "program/build"],
    "runtime": ["gguf", "device", "media", "kernels", "placement", "memory", "transition", "tensor", "program/build",
                "program/lower", "models", "tokenizer", "residency"],
    "api": [*FRONT, "device/registry.h"],
    "server": [*FRONT, "runtime/grammar/gbnf_text.h", "runtime/grammar/json_schema.h"],
}
# Tools whose file name begins so may look one room deeper.
TOOL_EXTRAS = {"cmd_inspect": ["gguf"], "cmd_plan": ["placement", "runtime/switch_plan.h"], "cmd_devices": ["device"],
               "doctor": ["gguf", "device/registry.h", "models/architecture.h", "kernels/cpu/cpu_kernels.h",
                          "runtime/model_file.h"], "metadata_flags": ["gguf/override.h"],
               "cmd_bench": ["device/registry.h"], "cmd_batched_bench": ["runtime/switch_plan.h"],
               "cmd_share": ["residency"], "cmd_serve": ["server", "device/registry.h", "gguf/gguf.h"],
               "cmd_version": ["kernels/cpu/cpu_kernels.h"]}
FREE_FOLDERS = ("bench", "tests", "fuzz", "lab")  # may include anything

BACKENDS = ("cpu", "cuda", "vulkan", "null", "faulty")
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".cpp", ".inc"}
HEADER_SUFFIXES = {".h", ".cuh"}
GPU_HEADERS = re.compile(r"^(cuda|cublas|cudnn|nvml|nccl|cub/|thrust/|mma\.h|vulkan|vk_|volk|hip/|rccl)")
HEAVY_HEADERS = re.compile(r"^(nlohmann/(?!json_fwd)|fmt/|httplib|boost/|prometheus/|pcre2|utf8proc|editline/)")
THIRD_PARTY = re.compile(r"^(gtest/|gmock/|nlohmann/|fmt/|httplib|boost/|prometheus/|pcre2|utf8proc|editline/)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    """The room of a path below src/, or None."""
    parts = path.split("/")
    for n in (2, 1):
        name = "/".join(parts[:n])
        if len(parts) > n and name in ALLOWED:
            return name
    return None


def backend_of(path):
    """"cpu" for device/cpu/... and kernels/cpu/..., else None."""
    parts = path.split("/")
    is_backend = len(parts) > 2 and parts[0] in ("device", "kernels") and parts[1] in BACKENDS
    return parts[1] if is_backend else None


def is_test(path):
    """Whether a file beside the code is a test or a helper of tests."""
    return "_test" in pathlib.PurePosixPath(path).stem


class Tree:
    """All sources below root with their include lines."""

    def __init__(self, root):
        self.root = root
        self.lines = {}  # file relative to root → [(line number, bracket, target as written)]
        for folder in ("src", "include", "tools", *FREE_FOLDERS):
            for path in sorted((root / folder).rglob("*")):
                name = path.relative_to(root).as_posix()
                if path.suffix in SUFFIXES and path.is_file() and not name.startswith("tests/data/"):
                    text = path.read_text(encoding="utf-8", errors="replace")
                    self.lines[name] = [(n, m[1], m[2]) for n, line in enumerate(text.split("\n"), 1)
                                        if (m := INCLUDE.match(line))]

    def resolve(self, file, target):
        """The file of the tree that an include names, or None."""
        own = file.rsplit("/", 1)[0]
        for candidate in (f"src/{target}", f"include/{target}", f"{own}/{target}", target):
            if candidate in self.lines:
                return candidate
        return None


def check_room_include(file, found):
    """Why file may not include found (both relative to root), or None."""
    if not found.startswith("src/"):
        return None
    target = found[len("src/"):]
    target_room = room_of(target)
    if target_room is None:
        return f"{found} lies in no room of the table"
    if file.startswith("tools/"):
        stem = pathlib.PurePosixPath(file).name
        allowed = FRONT + [room for prefix, rooms in TOOL_EXTRAS.items() if stem.startswith(prefix) for room in rooms]
        who = "tools"
    else:
        source = file[len("src/"):]
        who = room_of(source)
        if who is None:
            return f"{file} lies in no room of the table"
        backend = backend_of(target)
        if backend and backend_of(source) != backend:
            beside = target_room == who and source.count("/") == 1  # the registry beside the backends
            is_tested = who in ("device", "kernels") and is_test(source)
            is_list = target == f"kernels/{backend}/{backend}_kernels.h"
            if not beside and not is_tested and not is_list:
                return f"{target} is private to the {backend} backend"
        allowed = ALLOWED[who]
    if target_room in ("base", who) or target_room in allowed or target in allowed:
        return None
    return f"{who} may not include {target}"


def check_include(tree, file, bracket, target):
    """Why this include line is wrong, or None."""
    in_backend = file.startswith("src/") and backend_of(file[len("src/"):]) is not None
    is_free = file.split("/")[0] in FREE_FOLDERS
    if GPU_HEADERS.match(target) and not in_backend and not is_free:
        return "GPU headers belong to device/<backend>/ and kernels/<backend>/"
    if HEAVY_HEADERS.match(target) and pathlib.PurePosixPath(file).suffix in HEADER_SUFFIXES and not is_free:
        return "heavy headers belong in .cc files"
    found = tree.resolve(file, target)
    if found is None:
        if bracket == '"' and not THIRD_PARTY.match(target) and not GPU_HEADERS.match(target):
            return "no such file: quoted includes are written from src/"
        return None
    if bracket == "<" and not found.startswith("include/"):
        return "our own headers are included with quotes"
    if file.startswith("src/") and found.startswith("src/") and found != f"src/{target}":
        return "quoted includes are written from src/"
    if file.startswith("include/") and not found.startswith("include/"):
        return "public headers include public headers only"
    if is_free or file.startswith("include/"):
        return None
    if is_test(found) and not is_test(file):
        return "helpers of tests are for tests"
    if file.startswith("src/") and not found.startswith(("src/", "include/")):
        return f"src/ may not include {found.split('/')[0]}/"
    return check_room_include(file, found)


def find_cycle(edges):
    """A list of nodes that form a circle, first node repeated at the end, or None."""
    state = {}  # 1: on the current path, 2: done
    for start in sorted(edges):
        if start in state:
            continue
        state[start] = 1
        path = [start]
        pending = [iter(sorted(edges[start]))]
        while path:
            following = next(pending[-1], None)
            if following is None:
                state[path.pop()] = 2
                pending.pop()
            elif state.get(following) == 1:
                return path[path.index(following):] + [following]
            elif following not in state:
                state[following] = 1
                path.append(following)
                pending.append(iter(sorted(edges.get(following, ()))))
    return None


def check_tree(root):
    """All faults of a tree, one line each."""
    tree = Tree(root)
    faults = []
    file_edges = {}
    room_edges = {room: set() for room in ALLOWED}
    for file, includes in tree.lines.items():
        file_edges[file] = set()
        for line, bracket, target in includes:
            why = check_include(tree, file, bracket, target)
            if why:
                faults.append(f"{file}:{line}: {target}: {why}")
            found = tree.resolve(file, target)
            if found:
                file_edges[file].add(found)
                if file.startswith("src/") and found.startswith("src/"):
                    source_room, target_room = room_of(file[4:]), room_of(found[4:])
                    if source_room and target_room and source_room != target_room:
                        room_edges[source_room].add(target_room)
    for what, edges in (("files", file_edges), ("rooms", room_edges)):
        cycle = find_cycle(edges)
        if cycle:
            faults.append(f"{what} include each other in a circle: {' -> '.join(cycle)}")
    return faults, len(tree.lines)


GOOD_TREE = {
    "src/base/status.h": "#include <string>\n",
    "src/tensor/dtype.h": '#include "base/status.h"\n',
    "src/device/device.h": '#include "tensor/dtype.h"\n',
    "src/device/registry.cc": '#include "device/cpu/cpu_device.h"\n',
    "src/device/cpu/cpu_device.h": '#include "device/device.h"\n',
    "src/device/cuda/cuda_device.cc": "#include <cuda_runtime.h>\n",
    "src/kernels/cpu/add.cc": '#include "device/cpu/cpu_device.h"\n#include <fmt/format.h>\n',
    "src/program/build/builder.h": '#include "tensor/dtype.h"\n',
    "src/program/lower/lower.cc": '#include "program/build/builder.h"\n#include "device/device.h"\n',
    "src/runtime/engine.h": '#include "base/status.h"\n',
    "src/gguf/gguf.h": '#include "tensor/dtype.h"\n',
    "src/kernels/cpu/cpu_kernels.h": "",
    "src/runtime/engine.cc": '#include "kernels/cpu/cpu_kernels.h"\n',
    "include/tessera/tessera.h": "#include <stdint.h>\n",
    "src/server/fields.h": "#include <nlohmann/json_fwd.hpp>\n",
    "src/api/api.cc": '#include "runtime/engine.h"\n#include "tessera/tessera.h"\n',
    "tools/table.h": "",
    "tools/run.cc": '#include "runtime/engine.h"\n#include "table.h"\n#include "base/status.h"\n',
    "tools/cmd_inspect.cc": '#include "gguf/gguf.h"\n',
    "src/kernels/kernel_test_util.h": '#include "device/cpu/cpu_device.h"\n',
    "src/kernels/cpu/add_test.cc": '#include "kernels/kernel_test_util.h"\n',
    "tests/all_test.cc": '#include "device/cpu/cpu_device.h"\n#include <gtest/gtest.h>\n',
}
PLANTED = [  # (file, its text, a part of the complaint)
    ("src/tensor/bad.cc", '#include "device/device.h"\n', "tensor may not include device/device.h"),
    ("src/base/bad.cc", '#include "tensor/dtype.h"\n', "base may not include tensor"),
    ("src/program/build/bad.cc", '#include "program/lower/lower.h"\n', "program/build may not include program/lower"),
    ("src/program/lower/bad.cc", '#include "device/cpu/cpu_device.h"\n', "private to the cpu backend"),
    ("src/kernels/cuda/bad.cu", '#include "device/cpu/cpu_device.h"\n', "private to the cpu backend"),
    ("src/kernels/cpu/bad.cc", '#include "kernels/kernel_test_util.h"\n', "for tests"),
    ("src/memory/bad_test.cc", '#include "device/cpu/cpu_device.h"\n', "private to the cpu backend"),
    ("src/tensor/bad.cc", '#include "kernels/cpu/cpu_kernels.h"\n', "tensor may not include kernels"),
    ("src/api/bad.cc", '#include "device/device.h"\n', "api may not include device/device.h"),
    ("src/runtime/bad.cc", "#include <vulkan/vulkan.h>\n", "GPU headers"),
    ("src/device/bad.cc", "#include <cuda_runtime.h>\n", "GPU headers"),
    ("src/runtime/bad.h", "#include <nlohmann/json.hpp>\n", "heavy headers"),
    ("src/tensor/bad.h", "#include <fmt/format.h>\n", "heavy headers"),
    ("src/tensor/bad.cc", '#include "dtype.h"\n', "written from src/"),
    ("src/tensor/bad.cc", '#include "tensor/gone.h"\n', "no such file"),
    ("src/tensor/bad.cc", "#include <tensor/dtype.h>\n", "with quotes"),
    ("src/tensor/bad.cc", '  #  include "gguf/gguf.h" // why\n', "tensor may not include gguf"),
    ("src/cellar/bad.cc", '#include "base/status.h"\n', "in no room"),
    ("src/runtime/bad.cc", '#include "tools/table.h"\n', "src/ may not include tools/"),
    ("include/tessera/bad.h", '#include "base/status.h"\n', "public headers"),
    ("tools/run.cc", '#include "gguf/gguf.h"\n', "tools may not include gguf"),
    ("src/base/status.h", '#include "base/status.h"\n', "files include each other in a circle"),
    ("src/base/status.h", '#include "tensor/dtype.h"\n', "rooms include each other in a circle"),
]


def self_test():
    extra = {"src/program/lower/lower.h": ""}

    def faults_of(planted):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**GOOD_TREE, **extra, **planted}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return check_tree(root)[0]

    failed = [f"the good tree has faults: {faults_of({})}"] if faults_of({}) else []
    for name, text, complaint in PLANTED:
        faults = faults_of({name: text})
        if not any(complaint in fault for fault in faults):
            failed.append(f"planted in {name}: {text!r}: expected {complaint!r}, found {faults}")
    allowed_edges = {room: {t.rsplit("/", 1)[0] if t.endswith(".h") else t for t in targets}
                     for room, targets in ALLOWED.items()}
    if find_cycle(allowed_edges):
        failed.append(f"the table itself has a circle: {find_cycle(allowed_edges)}")
    for line in failed:
        print(line)
    n = len(PLANTED) + 2
    print(f"check_rooms self-test: {n - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    faults, n_files = check_tree(root)
    for fault in faults:
        print(fault)
    print(f"check_rooms: {n_files} files, {len(faults)} faults")
    return 1 if faults or n_files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
