/*
 * 比屏幕宽的公式和表格在自己的框里左右滚动；能滚动的框可以用键盘选中，读屏软件知道它是什么
 */
(() => {
  "use strict";

  const LABELS = {
    "div.arithmatex": "公式，可左右滚动",
    ".md-typeset__scrollwrap": "表格，可左右滚动",
  };

  function update(element, label) {
    if (element.scrollWidth > element.clientWidth) {
      element.tabIndex = 0;
      element.setAttribute("role", "group");
      element.setAttribute("aria-label", label);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) element.removeAttribute(name);
    }
  }

  const labels = new WeakMap();
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) update(target, labels.get(target));
  });

  document$.subscribe(({ body }) => {
    for (const [selector, label] of Object.entries(LABELS)) {
      body.querySelectorAll(selector).forEach((element) => {
        labels.set(element, label);
        observer.observe(element);
      });
    }
  });
})();
