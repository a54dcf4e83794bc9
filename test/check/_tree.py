"""What the checks share: the files of the tree, and how a finding is printed."""

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent


def files(*patterns: str) -> list[Path]:
    """The tracked files, and the new ones that git does not ignore, that match any of the patterns."""
    command = ["git", "-C", str(TOP), "ls-files", "-z", "-co", "--exclude-standard", "--", *patterns]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    paths = [TOP / name.decode() for name in out.split(b"\0") if name]
    return sorted(path for path in set(paths) if path.is_file() and not path.is_symlink())


def finish(problems: list[str]) -> None:
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def where(path: Path, line: int | None = None) -> str:
    name = str(path.relative_to(TOP))
    return f"{name}:{line}" if line else name
