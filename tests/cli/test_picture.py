"""README 里的图：能解析，不从网上取任何东西，由脚本画成"""

import re
import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "assets" / "demo.svg"


def test_picture_is_self_contained() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"')]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    words = "".join(ElementTree.fromstring(text).itertext())
    for part in ("gptcore demo", "训练之前写的", "这个模型", "gptcore generate"):
        assert part in words.replace("\n", "")


def test_wide_characters_stand_on_their_columns() -> None:
    script = runpy.run_path(str(ROOT / "tests" / "benchmarks" / "demo_picture.py"))
    svg = script["picture"]("\x1b[1;36m字a字\x1b[0m <&>\n\n第三行")
    texts = list(ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))
    assert [t.text for t in texts] == ["字", "a", "字", "<&>", "第三行"]
    left = [float(t.get("x", "").split()[0]) for t in texts]
    column = script["COLUMN"]
    assert [round((x - left[0]) / column) for x in left] == [0, 2, 3, 6, 0]
    assert len(texts[-1].get("x", "").split()) == 3
