"""训练途中磁盘满了：说清楚，旧的检查点完好，没有留下妨碍以后的东西，腾出地方之后接着训练"""

import sys
from pathlib import Path

import pytest
from faults.small_disk import run_on_small_disk


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="要用 Linux 的 tmpfs")
def test_the_disk_fills_up_while_training(tmp_path: Path) -> None:
    program = Path(__file__).with_name("checkpoint_disk_program.py")
    counts = run_on_small_disk(program, tmp_path, kilobytes=600)
    assert counts["失败"] > 15
