// Before the first paint, so that a page in the dark does not flash.
(() => {
  try {
    const theme = localStorage.getItem("pelton.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is forbidden: the system's theme it is.
  }
})();
