-- Each row keeps its struct whole in `document`; the other columns are what is asked for.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    night TEXT,
    what TEXT NOT NULL,
    role TEXT NOT NULL,
    variant TEXT NOT NULL,
    toolchain TEXT NOT NULL,
    base TEXT NOT NULL,
    started TEXT NOT NULL,
    state TEXT NOT NULL,
    document TEXT NOT NULL CHECK (json_valid(document))
) STRICT;
CREATE INDEX runs_started ON runs (started, id);
CREATE INDEX runs_night ON runs (night);

CREATE TABLE nights (
    id TEXT PRIMARY KEY,
    started TEXT NOT NULL,
    document TEXT NOT NULL CHECK (json_valid(document))
) STRICT;
CREATE INDEX nights_started ON nights (started, id);

CREATE TABLE troubles (
    key TEXT PRIMARY KEY,
    opened TEXT NOT NULL,
    closed TEXT,
    document TEXT NOT NULL CHECK (json_valid(document))
) STRICT;
