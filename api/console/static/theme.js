// The colours that this browser has chosen, before the page is drawn. Without a choice they are the system's.
try {
  const theme = localStorage.getItem("lakelog.theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch {
  // A browser without storage has those of its system.
}
