-- Fewer rows and fewer b-trees for a pause and its answer: what a commit costs is the pages that it touches.
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
DROP INDEX interrupts_pending;
