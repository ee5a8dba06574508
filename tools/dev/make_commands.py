#!/usr/bin/env python3
"""Writes docs/commands.md from the program's own --help.

    tools/dev/make_commands.py build/dev/bin/pelton            write it
    tools/dev/make_commands.py build/dev/bin/pelton --check    only compare; exit code 1 when it is not current
"""
import os
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/commands.md"

HEAD = """# Commands

What each command's `--help` says, written by `tools/dev/make_commands.py` from the program itself: change the declarations in `src/cli/`, not this page.
Options may also stand in a TOML or INI file (`--config FILE`, before the command), one section a command; those with an `Env:` note are also read from the environment.
"""


def help_of(binary, *command):
    # Without the caller's settings, which some options show as their defaults.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PELTON_")}
    text = subprocess.run([binary, *command, "--help"], check=True, capture_output=True, text=True, env=environment).stdout
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def commands_of(text):
    """Names below the heading of subcommands, in the program's order."""
    section = re.split(r"^(?:SUBCOMMANDS|Subcommands):\s*$", text, flags=re.MULTILINE)
    if len(section) != 2:
        sys.exit("--help lists no subcommands")
    return re.findall(r"^  (\S+)", section[1], flags=re.MULTILINE)


def page(binary):
    whole = help_of(binary)
    parts = [HEAD, f"```text\n{whole}\n```\n"]
    for command in commands_of(whole):
        parts.append(f"## pelton {command}\n```text\n{help_of(binary, command)}\n```\n")
    return "\n".join(parts)


def main():
    binary, check = os.path.abspath(sys.argv[1]), "--check" in sys.argv[2:]
    text = page(binary)
    if not check:
        PAGE.write_text(text)
    elif not PAGE.is_file() or PAGE.read_text() != text:
        sys.exit(f"docs/commands.md is not what --help says: run tools/dev/make_commands.py {sys.argv[1]}")


if __name__ == "__main__":
    main()
