"""文本一段一段地读：连起来与一次读完相同，出错的位置是全文里的"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore import DataError
from gptcore.data import read_text, text_chunks


@given(
    st.lists(st.sampled_from(["a", "\r", "\n", "\r\n", "龙", "𝄞", "é", "\ufeff"]), max_size=40),
    st.integers(3, 9),
)
def test_chunks_join_to_the_whole(parts: list[str], size: int) -> None:
    text = "".join(parts)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "a.txt"
        path.write_bytes(text.encode())
        patch.setattr("gptcore.data.text.CHUNK", size)
        found = list(text_chunks(path))
    text = text.removeprefix("\ufeff")
    assert "".join(found) == text.replace("\r\n", "\n").replace("\r", "\n")
    assert "" not in found


def test_an_empty_file_has_no_chunks(tmp_path: Path) -> None:
    path = tmp_path / "空.txt"
    for content in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(content)
        assert list(text_chunks(path)) == []
        with pytest.raises(DataError, match=r"空.txt. 是空的"):
            read_text(path)


@pytest.mark.parametrize("size", [3, 4, 5, 1000])
def test_where_it_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("gptcore.data.text.CHUNK", size)
    path = tmp_path / "a.txt"
    head = "\ufeff龙龙a".encode()
    path.write_bytes(head + b"\xff" + "龙".encode())
    with pytest.raises(DataError, match=f"位置 {len(head)}（从 0 数起）上的 0xFF"):
        list(text_chunks(path))
    path.write_bytes(head + "龙".encode()[:2])
    with pytest.raises(DataError, match=f"位置 {len(head)}.*0xE9.*没有传完"):
        list(text_chunks(path))
    path.write_bytes(head + "中文文本".encode("gb18030"))
    with pytest.raises(DataError, match=f"位置 {len(head)}.*GBK"):
        list(text_chunks(path))
