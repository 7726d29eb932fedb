-- A pause and its answer touch fewer pages and take fewer instructions; those are what a commit costs.
-- Conventions as in the first migration. What was written before stays as it is and stays right.

-- A question that is asked by itself (`interrupt`) says all that its journal entry would: it is that entry,
-- made at this time, and `journal` has no row for it. NULL: the entry, if there still is one, stands in
-- `journal`; so it does where several are asked at once, where the host asks, and where the call became
-- durable before the question did. A cut of the journal sets it to NULL.
ALTER TABLE interrupts ADD COLUMN called_at INTEGER;

-- How many questions of the thread wait for an answer. The row is written with every change of the thread
-- anyway, where an index of what is pending was one page more for each question and again for its answer.
ALTER TABLE threads ADD COLUMN pending INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET pending =
    (SELECT count(*) FROM interrupts i WHERE i.thread = threads.thread AND i.state = 'pending');

-- What a column may say is checked word by word: for a list of three or more (`IN`), SQLite makes a table in
-- memory each time that a row is written, which costs more than to write the row. Only the text of the checks
-- changes, and not what they let through; so the schema is changed in place, as SQLite's manual has it, and no
-- row is written anew.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql,
    'status IN (''running'', ''completed'', ''interrupted'', ''failed'', ''diverged'', ''cancelled'')',
    'status = ''running'' OR status = ''completed'' OR status = ''interrupted'' OR status = ''failed'' '
        || 'OR status = ''diverged'' OR status = ''cancelled''')
    WHERE type = 'table' AND name IN ('threads', 'runs', 'checkpoints');
UPDATE sqlite_schema SET sql = replace(sql,
    'state IN (''started'', ''paused'', ''finished'', ''failed'')',
    'state = ''started'' OR state = ''paused'' OR state = ''finished'' OR state = ''failed''')
    WHERE type = 'table' AND name = 'tasks';
UPDATE sqlite_schema SET sql = replace(replace(sql,
    'reply_kind IN (''answers'', ''begun'', ''asked'', ''known'', ''retryable'', ''steering'', ''attempt'')',
    'reply_kind = ''answers'' OR reply_kind = ''begun'' OR reply_kind = ''asked'' OR reply_kind = ''known'' '
        || 'OR reply_kind = ''retryable'' OR reply_kind = ''steering'' OR reply_kind = ''attempt'''),
    'reply_kind IN (''answers'', ''begun'', ''attempt'')',
    'reply_kind = ''answers'' OR reply_kind = ''begun'' OR reply_kind = ''attempt''')
    WHERE type = 'table' AND name = 'journal';
UPDATE sqlite_schema SET sql = replace(replace(sql,
    'kind IN (''node'', ''before'', ''after'', ''approve'', ''in-doubt'')',
    'kind = ''node'' OR kind = ''before'' OR kind = ''after'' OR kind = ''approve'' OR kind = ''in-doubt'''),
    'state IN (''pending'', ''answered'', ''withdrawn'')',
    'state = ''pending'' OR state = ''answered'' OR state = ''withdrawn''')
    WHERE type = 'table' AND name = 'interrupts';
UPDATE sqlite_schema SET sql = replace(sql,
    'status IN (''pending'', ''running'', ''success'', ''error'', ''interrupted'')',
    'status = ''pending'' OR status = ''running'' OR status = ''success'' OR status = ''error'' '
        || 'OR status = ''interrupted''')
    WHERE type = 'table' AND name = 'invocations';
PRAGMA writable_schema = OFF;
-- Its work is done by `pending` above. Last: it tells every connection that the schema is another now.
DROP INDEX interrupts_pending;
