"""The networks and operations of bench/cases compute the same in Aril and in the peers."""
import os
import subprocess
import sys

source, build = os.environ["ARIL_SOURCE_DIR"], os.environ["ARIL_BUILD_DIR"]
command = [os.path.join(source, "bench", "compare"), "--check", "--aril", os.path.join(build, "bin", "aril")]
environment = dict(os.environ)
environment.setdefault("ARIL_PEERS_VENV", os.path.join(build, "peers"))
sys.exit(subprocess.run(command, env=environment).returncode)
