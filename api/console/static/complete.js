// Names of tables, columns and functions below the query, as it is written. Tab takes one; the arrows choose
// another, Escape closes the list, so that Tab leaves the query again.

const SHOWN_MAX = 8;
const WORD = /"[^"]*$|[\p{L}\p{N}_$]*$/u;
const NAMES = /"([^"]+)"|([\p{L}_][\p{L}\p{N}_$]*)/gu;
const KEYWORDS = (
  "SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET JOIN LEFT USING ON AS AND OR NOT NULL IS IN BETWEEN " +
  "LIKE DISTINCT CASE WHEN THEN ELSE END WITH UNION ALL DESC ASC VALUES EXPLAIN ANALYZE DESCRIBE SHOW TABLES CAST " +
  "COUNT SUM AVG MIN MAX"
).split(" ");

/** A name as SQL has it: one that is no plain word needs quotes. */
export function quoted(name) {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/**
 * Complete names in the textarea `query`, in the listbox `list`. `tables` has the columns of each table that is
 * known, a list; `describe` finds those of others: a name, and a promise of a list.
 */
export function complete(query, list, tables, describe) {
  const hint = list.textContent;
  let found = [];
  let chosen = -1;

  async function offer(all = false) {
    const before = query.value.slice(0, query.selectionStart);
    const word = WORD.exec(before)[0];
    if (!word && !all) return close();
    const columns = await columnsNamed(query.value);
    if (before !== query.value.slice(0, query.selectionStart)) return; // more was typed meanwhile
    const begin = word.replace(/^"/, "").toLowerCase();
    const fits = (name) => name.toLowerCase().startsWith(begin);
    const keyword = word[0] === word[0]?.toUpperCase() ? (name) => name : (name) => name.toLowerCase();
    const names = [...new Set([...columns, ...tables.keys()])].filter(fits).map(quoted);
    const words = word.startsWith('"') || !word ? [] : KEYWORDS.filter(fits).map(keyword);
    found = [...new Set([...names, ...words])].filter((name) => name !== word).slice(0, SHOWN_MAX);
    if (!found.length) return close();
    chosen = 0;
    show();
  }

  async function columnsNamed(text) {
    const named = [...text.matchAll(NAMES)].map((match) => match[1] ?? match[2]);
    const lists = [...new Set(named)].filter((name) => tables.has(name)).map(async (name) => {
      if (tables.get(name) === null) tables.set(name, describe(name).catch(() => []));
      return tables.get(name);
    });
    return (await Promise.all(lists)).flat();
  }

  function show() {
    list.replaceChildren(
      ...found.map((name, index) => {
        const option = document.createElement("div");
        option.id = `name-${index}`;
        option.textContent = name;
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", String(index === chosen));
        option.addEventListener("mousedown", (event) => {
          event.preventDefault(); // the query keeps the focus
          take(index);
        });
        return option;
      }),
    );
    list.setAttribute("role", "listbox");
    query.setAttribute("aria-activedescendant", `name-${chosen}`);
  }

  function close() {
    found = [];
    list.replaceChildren(hint);
    list.removeAttribute("role");
    query.removeAttribute("aria-activedescendant");
  }

  function take(index) {
    const end = query.selectionStart;
    const word = WORD.exec(query.value.slice(0, end))[0];
    query.setRangeText(found[index], end - word.length, end, "end");
    close();
  }

  query.setAttribute("aria-autocomplete", "list");
  query.setAttribute("aria-controls", list.id);
  query.addEventListener("input", () => offer());
  query.addEventListener("blur", close);
  query.addEventListener("click", close);
  query.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      offer(true);
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      close(); // it runs the query
    } else if (!found.length || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    } else if (event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      take(chosen);
    } else if (event.key === "Escape") {
      close();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length;
      show();
    } else if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) {
      close();
    }
  });
  list.hidden = false;
}
