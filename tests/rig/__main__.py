"""Temporary."""
import sys,os
from tests.rig import developer, images, packages
packages.complete_path()
if sys.argv[1]=="up":
    d=developer.up(); print(f"export DOCKER_HOST={d.host}")
elif sys.argv[1]=="images":
    images.ensure_images(images.chosen(sys.argv[2:] or ["all"]), environment=os.environ)
