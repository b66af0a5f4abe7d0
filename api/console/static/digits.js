// Numbers for people. The commas are in the style: what is copied has the digits alone.

const NUMBER = /^(-?)(\d{4,})(\.\d+)?$/;
const LONG_FRACTION = /^-?\d+\.\d{7,}$/;
const DECIMALS = 6;

/** A text whose digits are in groups of three, if it is a number. */
export function grouped(text) {
  const made = document.createDocumentFragment();
  const found = NUMBER.exec(text);
  if (!found) {
    made.append(text);
    return made;
  }
  const [, sign, whole, fraction] = found;
  const groups = whole.split(/(?=(?:\d{3})+$)/);
  groups.forEach((digits, index) => {
    const part = document.createElement("span");
    part.className = "digits";
    part.textContent = (index ? "" : sign) + digits + (index === groups.length - 1 ? (fraction ?? "") : "");
    made.append(part);
  });
  return made;
}

/** A number of many decimals with six of them; a small one keeps all. */
export function rounded(text) {
  if (!LONG_FRACTION.test(text)) return text;
  const short = String(Number(Number(text).toFixed(DECIMALS)));
  return Math.abs(Number(text)) < 0.001 || short.includes("e") ? text : short;
}
