"""x"""
from tests.rig.engine import Engine
def run_inside(argv: list[str], engine: Engine) -> int:
    return 1
