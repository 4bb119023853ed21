"""MkDocs 钩子：搜索时教程的章、指南与接口页排在示例和其他页面前面"""

from typing import Any

BOOST = {"book/chapter": 3, "guides/": 3, "api/": 2}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """写进页面的元数据，由主题的搜索插件读取。"""
    for place, boost in BOOST.items():
        if page.file.src_uri.startswith(place):
            page.meta.setdefault("search", {"boost": boost})
    return markdown
