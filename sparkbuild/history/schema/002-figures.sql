-- Figures get rows of their own, so that one of them can be followed over a year of nights.
CREATE TABLE figures (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    name TEXT NOT NULL,
    restart INTEGER NOT NULL,
    value REAL NOT NULL,
    unit TEXT NOT NULL,
    more_is TEXT NOT NULL,
    PRIMARY KEY (run, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX figures_name ON figures (name, run);

INSERT INTO figures (run, place, name, restart, value, unit, more_is)
SELECT
    runs.id,
    one.key,
    json_extract(one.value, '$.name'),
    coalesce(json_extract(one.value, '$.restart'), 0),
    json_extract(one.value, '$.value'),
    json_extract(one.value, '$.unit'),
    json_extract(one.value, '$.more_is')
FROM runs, json_each(runs.document, '$.figures') AS one;
