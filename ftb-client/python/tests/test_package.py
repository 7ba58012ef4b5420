"""What an index and a type checker see of the installed package."""

import ast
import importlib
import importlib.metadata
import importlib.resources
import pathlib
import pkgutil
import unittest

import ftb
from ftb import _native


def package():
    return pathlib.Path(ftb.__file__).parent


def stub_names(body):
    """Public names that a stub defines, with their parameters; those of classes are `Class.name`."""
    names = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names[node.name] = [argument.arg for argument in node.args.args]
        elif isinstance(node, ast.ClassDef):
            names[node.name] = None
            inner = stub_names(node.body).items()
            names.update({f"{node.name}.{name}": parameters for name, parameters in inner})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = None
    return names


def module_names(thing, inherited=frozenset(dir(Exception) + dir(object))):
    """The same of a module or class."""
    names = set()
    for name in dir(thing):
        value = getattr(thing, name)
        if name.startswith("_") or name in inherited:
            continue
        names.add(name)
        if isinstance(value, type):
            names.update(f"{name}.{inner}" for inner in module_names(value))
    return names


class Stubs(unittest.TestCase):
    def test_the_stub_of_the_native_half_has_its_names_and_no_others(self):
        stub = ast.parse((package() / "_native.pyi").read_text())
        stubbed = {name for name in stub_names(stub.body) if "__" not in name}
        self.assertEqual(stubbed, module_names(_native))
        self.assertIn("Client.publish", stubbed)

    def test_functions_have_the_parameters_of_their_stubs(self):
        stub = ast.parse((package() / "_native.pyi").read_text())
        compared = 0
        for name, parameters in stub_names(stub.body).items():
            owner, _, inner = name.rpartition(".")
            thing = getattr(_native, owner) if owner else _native
            signature = getattr(getattr(thing, inner), "__text_signature__", None)
            if inner.startswith("__") or parameters is None or signature is None:
                continue
            known = [word.strip(" $") for word in signature.strip("()").split(",")]
            known = [word.split("=")[0] for word in known if word not in ("", "/", "*")]
            self.assertEqual(parameters, known, name)
            compared += 1
        self.assertGreater(compared, 10)

    def test_type_checkers_find_the_types(self):
        self.assertTrue((package() / "py.typed").is_file())
        for module in pkgutil.iter_modules([str(package())]):
            if module.name == "_native":
                continue
            tree = ast.parse((package() / f"{module.name}.py").read_text())
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    where = f"{module.name}.py:{node.lineno} {node.name}"
                    self.assertIsNotNone(node.returns, where)

    def test_all_names_that_are_offered_exist(self):
        for name in ("ftb", "ftb.job"):
            module = importlib.import_module(name)
            for offered in module.__all__:
                self.assertTrue(hasattr(module, offered), f"{name}.{offered}")


class Metadata(unittest.TestCase):
    def setUp(self):
        self.distribution = importlib.metadata.distribution("ftb")
        self.metadata = self.distribution.metadata

    def test_an_index_shows_what_it_is(self):
        self.assertEqual(self.metadata["Requires-Python"], ">=3.9")
        self.assertIn("Apache-2.0", (self.metadata["License-Expression"], self.metadata["License"]))
        self.assertIn("Typing :: Typed", self.metadata.get_all("Classifier"))
        self.assertIn("text/markdown", self.metadata["Description-Content-Type"])
        text = self.metadata.get_payload() or self.metadata["Description"]
        self.assertIn('with ftb.Client("my-script")', text)

    def test_the_wheel_says_which_glibc_it_needs_and_brings_its_licence(self):
        wheel = self.distribution.read_text("WHEEL")
        tags = [line[5:] for line in wheel.splitlines() if line.startswith("Tag: ")]
        self.assertTrue(tags and all(tag.startswith("cp39-abi3-manylinux_") for tag in tags), tags)
        files = [str(file) for file in self.distribution.files]
        self.assertTrue(any(file.endswith("LICENSE") for file in files), files)


if __name__ == "__main__":
    unittest.main()
