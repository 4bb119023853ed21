/*
 * 用 KaTeX 排版公式
 *
 * pymdownx.arithmatex（generic: true）把公式包在 class 为 arithmatex 的元素里，
 * 写成 \(…\) 或 \[…\]；只处理这些元素，代码里的 $ 不受影响。
 */
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
  });
});
