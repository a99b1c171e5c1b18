"""``splitserve lab`` where no file may grow beyond a size: ``limited_lab.py BYTES VERB ...``.

The kernel then refuses in the middle of a write, as it does on a full disk. The client's self-test,
which has tests of its own, is left out.
"""

import resource
import sys

from lab.run.rig import passed
from splitserve.cli import lab_study
from splitserve.cli.main import main

most, *arguments = sys.argv[1:]
lab_study.full_preflight = passed
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), hard))
sys.exit(main(arguments))
