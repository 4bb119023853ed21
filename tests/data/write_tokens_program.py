"""test_token_files 的子进程：写一个词元文件，写到一半停下，等着被终止

python write_tokens_program.py 词元文件 第几份停下
"""

import sys
import time
from collections.abc import Iterator

from gptcore import write_tokens
from gptcore.data import ByteTokenizer


def documents(stop: int) -> Iterator[str]:
    for i in range(stop + 1):
        if i == stop:
            sys.stdout.buffer.write("停在这里\n".encode())
            sys.stdout.flush()
            time.sleep(60)
        yield str(i) * 2_000_000


if __name__ == "__main__":
    write_tokens(sys.argv[1], documents(int(sys.argv[2])), ByteTokenizer())
