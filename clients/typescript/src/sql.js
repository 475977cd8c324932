/** SQL statements and their results. */
/** @internal The statement of a tagged template or of a text; parameters become `$1`, `$2`, … */
export function statementOf([text, ...rest]) {
    const isTemplate = typeof text !== "string";
    const params = (isTemplate ? rest : rest[0] ?? []);
    const sql = isTemplate ? text.reduce((sql, part, index) => `${sql}$${index}${part}`) : text;
    return { sql, ...(params.length > 0 && { params: params.map(wireParam) }) };
}
function wireParam(value) {
    switch (typeof value) {
        case "undefined":
            throw new TypeError("an SQL parameter is undefined; use null for NULL");
        case "number":
            return Number.isFinite(value) ? value : String(value);
        case "bigint":
            return String(value);
        case "object":
            return value === null ? null : textOf(value);
        default:
            return value;
    }
}
function textOf(value) {
    if (value instanceof Date)
        return value.toISOString();
    if (value instanceof Uint8Array)
        return `\\x${Array.from(value, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
    if (Array.isArray(value))
        return `{${value.map(element).join(",")}}`;
    return JSON.stringify(value);
}
/** An element of a PostgreSQL array. */
function element(value) {
    if (Array.isArray(value))
        return textOf(value);
    const wire = wireParam(value);
    return wire === null ? "NULL" : typeof wire === "string" ? `"${wire.replace(/["\\]/g, "\\$&")}"` : String(wire);
}
/** @internal Rows as objects. */
export function sqlResult({ command, columns = [], rows = [] }) {
    const named = rows.map((row) => Object.fromEntries(columns.map((column, index) => [column.name, row[index]])));
    return { command, rowCount: Number(/\d+$/.exec(command)?.[0] ?? 0), rows: named, columns };
}
//# sourceMappingURL=sql.js.map