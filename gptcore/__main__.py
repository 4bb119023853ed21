"""`python -m gptcore`：与命令 `gptcore` 相同"""

import sys

from gptcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
