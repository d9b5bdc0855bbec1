"""protoc: texts of Protobuf in, descriptors as Google's own compiler makes them out."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_tools import protoc


def compiled(text: str, **imports: str) -> FileDescriptor:
    """A file's descriptor; imports by their name without `.proto`."""
    with TemporaryDirectory() as folder:
        for name, source in {"main": text, **imports}.items():
            Path(folder, f"{name}.proto").write_text(source, "utf-8")
        out = Path(folder, "set")
        google = files("grpc_tools") / "_proto"
        assert not protoc.main(
            ["protoc", f"-I{folder}", f"-I{google}", "--include_imports", f"--descriptor_set_out={out}", "main.proto"]
        )
        found = FileDescriptorSet.FromString(out.read_bytes())
    pool = DescriptorPool()
    for file in found.file:
        pool.Add(file)
    return pool.FindFileByName("main.proto")
