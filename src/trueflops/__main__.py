"""python -m trueflops."""

from trueflops.cli import main

raise SystemExit(main())
