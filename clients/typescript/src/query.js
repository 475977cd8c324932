/** Events and queries: their types, and their form in requests. */
/** @internal The items of a query. */
export function itemsOf(query) {
    const items = Array.isArray(query) ? query : [query];
    // The server reads such a query as every event, which a list that happens to be empty does not mean.
    if (items.length === 0)
        throw new TypeError("a query of no items; use {} for every event");
    return items;
}
/** @internal */
export function wireQuery(query) {
    const items = itemsOf(query).map(({ types, tags, typePrefixes, tagPrefixes }) => ({
        ...(types && { types }),
        ...(tags && { tags }),
        ...(typePrefixes && { type_prefixes: typePrefixes }),
        ...(tagPrefixes && { tag_prefixes: tagPrefixes }),
    }));
    // An item without restrictions stands for every event; so does a query without items.
    return items.some((item) => Object.keys(item).length === 0) ? { items: [] } : { items };
}
/** @internal */
export function wireCondition({ failIfEventsMatch, after }) {
    return { fail_if_events_match: wireQuery(failIfEventsMatch), ...(after !== undefined && { after }) };
}
/** @internal Whether the event matches the query, as the server decides it. */
export function matches(query, event) {
    return itemsOf(query).some(({ types, tags, typePrefixes, tagPrefixes }) => {
        const ofType = (!types?.length && !typePrefixes?.length)
            || types?.includes(event.type) || typePrefixes?.some((prefix) => event.type.startsWith(prefix));
        return ofType
            && (tags ?? []).every((tag) => event.tags.includes(tag))
            && (tagPrefixes ?? []).every((prefix) => event.tags.some((tag) => tag.startsWith(prefix)));
    });
}
/** @internal The event as the server receives it. */
export function wireEvent(rules, event) {
    const derived = rules[event.type]?.(event.data) ?? [];
    const tags = [...new Set([...derived, ...(event.tags ?? [])])];
    const { type, data, id, metadata } = event;
    return { type, ...(tags.length > 0 && { tags }), ...(data !== undefined && { data }), ...(id && { id }), ...(metadata && { metadata }) };
}
/** @internal The event as the application receives it. */
export function recorded({ position, seq, recorded_at, type, tags, data, data_base64, id, metadata }) {
    return {
        position, seq, recordedAt: recorded_at, type, tags: tags ?? [], data,
        ...(data_base64 !== undefined && { dataBase64: data_base64 }),
        ...(id !== undefined && { id }),
        ...(metadata !== undefined && { metadata }),
    };
}
/** @internal An array of one or several values. */
export function listOf(value) {
    return value === undefined ? [] : Array.isArray(value) ? value : [value];
}
//# sourceMappingURL=query.js.map