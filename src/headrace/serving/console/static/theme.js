// Before the first paint, so that a dark page does not begin light.
try {
  const theme = localStorage.getItem("headrace.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a browser that keeps nothing shows what the system prefers */ }
