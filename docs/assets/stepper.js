/*
 * 分步图：把 <figure class="stepper"> 里的 .stepper-step 变成一步一步翻看的图
 *
 *   <figure class="stepper" id="fig-7-1" markdown="1">
 *   <div class="stepper-step" markdown="1"> …图与一句话… </div>
 *   <div class="stepper-step" markdown="1"> … </div>
 *   <figcaption>图 7-1 …</figcaption>
 *   </figure>
 *
 * 没有 JavaScript 时和打印时，各步依次排列。不保存任何状态。
 */
(() => {
  "use strict";

  const KEYS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

  function button(label, sign) {
    const element = document.createElement("button");
    element.type = "button";
    element.className = "stepper-button";
    const text = document.createElement("span");
    text.textContent = label;
    const arrow = document.createElement("span");
    arrow.setAttribute("aria-hidden", "true");
    arrow.textContent = sign < 0 ? "←" : "→";
    element.append(...(sign < 0 ? [arrow, text] : [text, arrow]));
    return element;
  }

  function setUp(figure) {
    const steps = [...figure.querySelectorAll(":scope > .stepper-step")];
    if (figure.classList.contains("stepper-ready") || steps.length < 2) return;

    // 各步叠放在同一格里：高度取最高的一步，翻看时页面不跳动
    const stage = document.createElement("div");
    stage.className = "stepper-stage";
    stage.tabIndex = 0;
    stage.setAttribute("role", "group");
    steps[0].before(stage);
    stage.append(...steps);

    const previous = button("上一步", -1);
    const next = button("下一步", 1);
    const status = document.createElement("span");
    status.className = "stepper-status";
    status.setAttribute("role", "status");
    status.setAttribute("aria-live", "polite");
    const controls = document.createElement("div");
    controls.className = "stepper-controls";
    controls.append(previous, status, next);
    stage.after(controls);

    const caption = figure.querySelector(":scope > figcaption");
    const title = caption ? caption.textContent.trim().split(/\s+/).slice(0, 2).join(" ") : "";
    stage.setAttribute("aria-label", `${title}，分步图，左右方向键翻看`.replace(/^，/, ""));

    let current = 0;
    function show(index) {
      current = Math.max(0, Math.min(steps.length - 1, index));
      steps.forEach((step, i) => step.classList.toggle("stepper-hidden", i !== current));
      status.textContent = `第 ${current + 1} 步，共 ${steps.length} 步`;
      // 不用 disabled：按钮一停用就失去焦点，方向键也跟着失灵
      previous.setAttribute("aria-disabled", String(current === 0));
      next.setAttribute("aria-disabled", String(current === steps.length - 1));
    }

    previous.addEventListener("click", () => show(current - 1));
    next.addEventListener("click", () => show(current + 1));
    figure.addEventListener("keydown", (event) => {
      const move = KEYS[event.key];
      if (move === undefined || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) {
        return;
      }
      event.preventDefault();
      event.stopPropagation();
      show(current + move);
    });

    figure.classList.add("stepper-ready");
    show(0);
  }

  function setUpAll(root) {
    root.querySelectorAll("figure.stepper").forEach(setUp);
  }

  // Material 的即时导航每换一页都会发出 document$；没有它时等页面读完
  if (typeof document$ !== "undefined") {
    document$.subscribe(() => setUpAll(document));
  } else if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", () => setUpAll(document));
  } else {
    setUpAll(document);
  }
})();
