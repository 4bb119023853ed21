"""画廊的缓存：没有变的示例不再运行，示例变了只运行它，库变了全部重新运行"""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from browser.built import ROOT

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs/_hooks/gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("default")
def test_what_runs_again(gallery: ModuleType, tmp_path: Path) -> None:
    examples, library, log = tmp_path / "examples", tmp_path / "library", tmp_path / "log"
    for folder in (examples, library):
        folder.mkdir()
    (examples / "GALLERY_HEADER.txt").write_text("# 示例\n", encoding="utf-8")
    (library / "data.txt").write_text("一", encoding="utf-8")

    def write(name: str, text: str) -> None:
        code = f"with open({str(log)!r}, 'a') as file:\n    file.write({name!r} + ' ')\n"
        source = f'"""\n# 标题\n\n{text}\n"""\n\n{code}'
        (examples / f"plot_{name}.py").write_text(source, encoding="utf-8")

    def ran() -> list[str]:
        log.write_text("", encoding="utf-8")
        gallery.run_gallery(examples, library, tmp_path / "cache")
        return sorted(log.read_text(encoding="utf-8").split())

    write("a", "第一个")
    write("b", "第二个")
    assert ran() == ["a", "b"]
    assert ran() == []
    write("b", "改过的第二个")
    assert ran() == ["b"]
    (library / "data.txt").write_text("二", encoding="utf-8")
    assert ran() == ["a", "b"]


@pytest.mark.filterwarnings("default")
def test_a_failing_example_stops_the_build(gallery: ModuleType, tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    examples.mkdir()
    (examples / "GALLERY_HEADER.txt").write_text("# 示例\n", encoding="utf-8")
    source = '"""\n# 标题\n\n文字。\n"""\n\n1 / 0\n'
    (examples / "plot_bad.py").write_text(source, encoding="utf-8")
    with pytest.raises(gallery.PluginError, match=r"示例运行失败[\s\S]*ZeroDivisionError"):
        gallery.run_gallery(examples, tmp_path / "library", tmp_path / "cache")
