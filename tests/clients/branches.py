"""Time travel, as somebody writes it who knows it from the field's own server. Arguments: the server's address, the
name of a graph of two nodes in a row, `n` and `m`."""

import asyncio
import sys

from langgraph_sdk import get_client, get_sync_client

from refusals import fails_with

URL, GRAPH = sys.argv[1], sys.argv[2]
# `n` adds 1 to `c` and writes a word; `m` asks whether that is right, and adds 10.
RUN = {"script": {"n": [{"put": {"a": ["draft"], "c": 1}}], "m": [{"ask": "right?"}, {"put": {"c": 10}}, {"put_results": "a"}]}}


async def main():
    client = get_client(url=URL)
    tid = (await client.threads.create(metadata={"of": "branches"}))["thread_id"]
    paused = await client.runs.wait(tid, GRAPH, input=RUN)
    assert paused["__interrupt__"][0]["value"] == "right?", paused
    done = await client.runs.wait(tid, GRAPH, command={"resume": "yes"})
    assert done["c"] == 11 and done["a"] == ["draft", "yes"], done

    # Every state there was, the newest first; each is found again by its checkpoint.
    history = await client.threads.get_history(tid, limit=50)
    assert history[0]["next"] == [] and history[-1]["next"] == ["n"], [h["next"] for h in history]
    for state in history:
        again = await client.threads.get_state(tid, checkpoint=state["checkpoint"])
        assert again["values"] == state["values"] and again["next"] == state["next"], (again, state)
        by_id = await client.threads.get_state(tid, checkpoint_id=state["checkpoint"]["checkpoint_id"])
        assert by_id["checkpoint"] == state["checkpoint"]
    before_m = next(h for h in history if h["next"] == ["m"] and not h["tasks"][0]["interrupts"])
    asked_at = next(h for h in history if h["next"] == ["m"] and h["tasks"][0]["interrupts"])
    assert before_m["values"]["c"] == 1

    # Replay: from before `m` again. It asks again, and what came after is history.
    replay = await client.runs.wait(tid, GRAPH, input=None, checkpoint=before_m["checkpoint"])
    [question] = replay["__interrupt__"]
    assert question["id"] != paused["__interrupt__"][0]["id"]
    assert (await client.threads.get(tid))["status"] == "interrupted"
    done = await client.runs.wait(tid, GRAPH, command={"resume": "no"})
    assert done["c"] == 11 and done["a"] == ["draft", "no"], done
    await fails_with(409, client.runs.wait(tid, GRAPH, command={"resume": {paused["__interrupt__"][0]["id"]: "late"}}))

    # Answer otherwise at the question that was asked then.
    done = await client.runs.wait(tid, GRAPH, command={"resume": "perhaps"}, checkpoint_id=asked_at["checkpoint"]["checkpoint_id"])
    assert done["a"] == ["draft", "perhaps"], done

    # Fork: write into an old state, and run from there.
    forked = await client.threads.update_state(tid, {"a": ["edited"]}, checkpoint=before_m["checkpoint"])
    state = await client.threads.get_state(tid)
    assert state["checkpoint"]["checkpoint_id"] == forked["checkpoint"]["checkpoint_id"]
    assert state["next"] == ["m"] and state["values"]["a"] == ["draft", "edited"], state
    paused = await client.runs.wait(tid, GRAPH, input=None, checkpoint_id=forked["checkpoint"]["checkpoint_id"])
    assert [q["value"] for q in paused["__interrupt__"]] == ["right?"], paused
    done = await client.runs.wait(tid, GRAPH, command={"resume": "ok"})
    assert done["a"] == ["draft", "edited", "ok"] and done["c"] == 11, done

    # As a node: `n` is done with this, and `m` follows.
    start = history[-1]["checkpoint"]
    forked = await client.threads.update_state(tid, {"a": ["by hand"]}, as_node="n", checkpoint=start)
    state = await client.threads.get_state(tid)
    assert state["next"] == ["m"] and state["values"]["a"] == ["by hand"] and "c" not in state["values"], state
    await client.runs.wait(tid, GRAPH, input=None)
    done = await client.runs.wait(tid, GRAPH, command={"resume": 1})
    assert done["a"] == ["by hand", 1] and done["c"] == 10, done

    # Edit what waits, and answer: the question is asked anew from the edited state.
    await client.runs.wait(tid, GRAPH, input=RUN)
    await client.threads.update_state(tid, {"c": 100})
    state = await client.threads.get_state(tid)
    assert state["next"] == ["m"] and state["tasks"][0]["interrupts"], state
    before = state["values"]["c"]
    done = await client.runs.wait(tid, GRAPH, command={"resume": "edited"})
    assert done["c"] == before + 10, done
    # Nothing is left to do, and that is how it ends.
    assert await client.runs.wait(tid, GRAPH, input=None) == done

    # New input from an old state.
    fresh = await client.runs.wait(tid, GRAPH, input={"script": {"n": [{"put": {"c": 5}}], "m": []}}, checkpoint=before_m["checkpoint"])
    assert fresh["c"] == 6 and fresh["a"] == ["draft"], fresh
    newest = (await client.threads.get_history(tid, limit=50))[0]
    assert newest["values"]["c"] == 6

    # A stream from an old state.
    parts = [p async for p in client.runs.stream(tid, GRAPH, input=None, checkpoint=before_m["checkpoint"], stream_mode=["updates", "values"])]
    assert parts[-1].event == "end" and any("__interrupt__" in p.data for p in parts if p.event == "updates"), parts

    # What is refused.
    await fails_with(404, client.threads.get_state(tid, checkpoint_id="0190b2c4-0000-7000-8000-000000000000"))
    await fails_with(404, client.runs.wait(tid, GRAPH, input=None, checkpoint_id="0190b2c4-0000-7000-8000-000000000000"))
    other = (await client.threads.create())["thread_id"]
    await fails_with(404, client.threads.get_state(other, checkpoint_id=before_m["checkpoint"]["checkpoint_id"]))

    # Copies, and what is no longer needed.
    await client.threads.copy(tid)
    found = await client.threads.search(metadata={"of": "branches"}, limit=10)
    assert len(found) == 2, found
    [copy] = [t for t in found if t["thread_id"] != tid]
    assert copy["status"] == "interrupted" and copy["values"] == (await client.threads.get(tid))["values"]
    done = await client.runs.wait(copy["thread_id"], GRAPH, command={"resume": "copied"})
    assert done["a"][-1] == "copied"
    assert (await client.threads.get(tid))["status"] == "interrupted"
    many = len(await client.threads.get_history(tid, limit=100))
    pruned = await client.threads.prune([tid, "nobody"], strategy="keep_latest")
    assert pruned == {"pruned_count": 1}
    assert len(await client.threads.get_history(tid, limit=100)) < many
    await fails_with(404, client.runs.wait(tid, GRAPH, input=None, checkpoint=before_m["checkpoint"]))
    done = await client.runs.wait(tid, GRAPH, command={"resume": "after"})
    assert done["a"][-1] == "after"
    assert await client.threads.prune([tid, copy["thread_id"], other]) == {"pruned_count": 3}
    await fails_with(404, client.threads.get(tid))


def sync():
    client = get_sync_client(url=URL)
    tid = client.threads.create()["thread_id"]
    client.runs.wait(tid, GRAPH, input=RUN)
    [paused, before, *_] = client.threads.get_history(tid)
    fork = client.threads.update_state(tid, {"a": ["sync"]}, checkpoint=before["checkpoint"])
    client.runs.wait(tid, GRAPH, input=None, checkpoint=fork["checkpoint"])
    assert client.runs.wait(tid, GRAPH, command={"resume": 7})["a"] == ["draft", "sync", 7]
    client.threads.delete(tid)


asyncio.run(main())
sync()
print("ok")
