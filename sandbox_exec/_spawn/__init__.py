"""The spawn backend: a program's child processes, run in one shared container instead of here."""
