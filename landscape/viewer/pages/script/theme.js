// Colours of plots are those of the page: light, dark, or as it is printed.

const SERIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]; // Okabe and Ito
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];

let printing = false;

const dark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  return !printing && (state.theme === "dark" || (state.theme === "auto" && dark.matches));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

function startTheme(redraw) {
  declare("theme", "auto", (theme) => ["auto", "light", "dark"].includes(theme));
  const renew = () => {
    applyTheme();
    redraw();
  };
  applyTheme();
  dark.addEventListener("change", renew);
  watch((changed) => changed.has("theme") && renew());
  for (const [moment, now] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(moment, () => {
      printing = now;
      renew();
    });
  }
}
