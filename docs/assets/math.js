/*
 * 用 KaTeX 排版公式
 *
 * pymdownx.arithmatex（generic: true）把公式包在 class 为 arithmatex 的元素里，
 * 写成 \(…\) 或 \[…\]；只处理这些元素，代码里的 $ 不受影响。
 */
(() => {
  "use strict";

  // 浏览器允许在公式与后面的标点之间换行；短公式与标点包在一起，标点就不会跑到行首
  function keepPunctuation(math) {
    const next = math.nextSibling;
    if (math.tagName !== "SPAN" || next?.nodeType !== Node.TEXT_NODE) return;
    const marks = /^[，。：；、？！）”》]+/.exec(next.data);
    if (!marks || math.offsetWidth > 160) return;
    next.splitText(marks[0].length);
    const box = document.createElement("span");
    box.className = "math-with-punctuation";
    math.before(box);
    box.append(math, next);
  }

  document$.subscribe(({ body }) => {
    body.querySelectorAll(".arithmatex").forEach((element) => {
      renderMathInElement(element, {
        delimiters: [
          { left: "\\(", right: "\\)", display: false },
          { left: "\\[", right: "\\]", display: true },
        ],
        strict: (code) => (code === "unicodeTextInMathMode" ? "ignore" : "warn"),
        throwOnError: false,
      });
      keepPunctuation(element);
    });
  });
})();
