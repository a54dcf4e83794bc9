#!/usr/bin/env python3
"""Every shell script and Python file parses; nothing Python imports comes from outside the standard library."""

import ast
import subprocess
import sys

from _tree import TOP, files, finish, where

ALLOWED = {"pytest", "_pytest", "gdb"}  # gdb brings its own, for the helper that it loads


def main():
    problems = []
    python = files("*.py", "**/*.py")
    own = {path.stem for path in python}
    for path in python:
        try:
            tree = ast.parse(path.read_text(), str(path))
        except SyntaxError as error:
            problems.append(f"{where(path, error.lineno)}: {error.msg}")
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            else:
                continue
            for module in modules:
                top = module.split(".")[0]
                if top not in sys.stdlib_module_names and top not in ALLOWED and top not in own:
                    problems.append(f"{where(path, node.lineno)}: imports {top}, which is not in Python itself")
    for path in files("*"):
        with open(path, "rb") as handle:
            first = handle.readline(100)
        if first.startswith(b"#!") and b"sh" in first.split(b"/")[-1]:
            done = subprocess.run(["bash", "-n", str(path)], stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                problems.append(f"{path.relative_to(TOP)}: {done.stderr.strip()}")
    finish(problems)


main()
