"""Where everybody should be: who stays, who is driven out and by when, the spread and what it must gain."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = [
    *mutants_of(
        "core/planning/places/guarantees.py",
        (
            "who does not wait has waited as long as who begins to",
            "Nothing that time alone changes waits for another event.",
            "workload.present, workload.in_line_since, *",
            "workload.present, workload.waiting_since or draft.state.at, *",
        ),
        (
            "a draft that is thrown away leaves its exchanges behind",
            "Nobody's home changes for a plan that is not made.",
            "own = replace(homes, homes=dict(homes.homes))",
            "own = homes",
        ),
        (
            "who came first has the next turn, whoever waits",
            "Where more is promised than there is, who has waited longest is next.",
            "    if not workload.spec.can_take_turns or all(pool.oversubscribe <= 1.0 for pool in pools):\n",
            "    if True:\n",
        ),
        (
            "who runs stays whatever it may",
            "A borrower leaves where it may not be any more.",
            "stays = stays and all(draft.rooms.may_stay(workload, uuid) for uuid in stays_at)",
            "stays = stays and True",
        ),
        (
            "who borrows stays where requests exceed",
            "Who only borrows leaves where the requests exceed a Gpu.",
            "            draft.drive_out(chosen, uuid)\n",
            "            draft.waits[chosen.id] = ''\n            continue\n",
        ),
        (
            "the most harm first",
            "Who leaves is who is harmed least.",
            "members = sorted(draft.rooms.members(uuid), key=draft.harm)",
            "members = sorted(draft.rooms.members(uuid), key=draft.harm, reverse=True)",
        ),
        (
            "more leave than is needed",
            "Only as many leave as is needed.",
            "            if not draft.rooms.requests_exceed(uuid):\n                break\n",
            "",
        ),
        (
            "who takes turns stays where more is promised",
            "Where more is promised than there is, requests now still never exceed a Gpu.",
            "leavers += [w for w in members if w.spec.can_take_turns and w not in leavers]",
            "leavers += []",
        ),
        (
            "a burst comes before a guarantee",
            "Burst comes after every guarantee.",
            "    if not workload.within_request:\n        # Burst",
            "    if False:\n        # Burst",
        ),
        (
            "what is held never yields",
            "Where what is held does not fit beside the requests, the bursters yield.",
            "    _clear_sizes(draft)\n    return draft",
            "    return draft",
        ),
        (
            "who holds least yields first",
            "Bursters yield in the order of harm.",
            "if _holds_burst(w, uuid)), key=draft.harm)",
            "if _holds_burst(w, uuid)), key=draft.harm, reverse=True)",
        ),
        (
            "commands go before notebooks",
            "Commands that cannot come back are the last to go.",
            "for holder in sorted(holders, key=lambda w: not w.spec.movable):",
            "for holder in sorted(holders, key=lambda w: w.spec.movable):",
        ),
        (
            "who is within its request is a victim",
            "A workload within its request is never a victim of a burst.",
            "uuid in workload.current and workload.over_request_bytes > 0",
            "uuid in workload.current",
        ),
        (
            "who yields has no other place",
            "Who yields moves where there is room.",
            "best = draft.rooms.best_for(holder) if holder.spec.may_borrow else None",
            "best = None",
        ),
        (
            "shortage is nobody's reason to trim",
            "Caches are given back where what is held is too much.",
            "        draft.note_short(uuid)\n",
            "        pass\n",
        ),
        (
            "a guest leaves where it could stay",
            "Who has lost its home stays as long as nobody needs its place.",
            "if stays and all(draft.rooms.holds_guest(guest, uuid) for uuid in guest.current):",
            "if False:",
        ),
        (
            "a wish is granted where there is no room",
            "A wish breaks no guarantee.",
            "(wish,) if draft.rooms.fits(workload, wish) else gpus",
            "(wish,)",
        ),
        (
            "a home that is out of service is claimed",
            "Who is at home on a broken Gpu waits and reads so.",
            "    if not all(uuid in draft.rooms.gpus for uuid in home):\n",
            "    if False:\n",
        ),
        (
            "who was chosen leaves though the newcomer gets no place",
            "Who was chosen stays when nobody comes to its place after all.",
            "        if not stay:\n",
            "        if True:\n",
        ),
    ),
    *mutants_of(
        "core/planning/places/draft.py",
        (
            "a deadline counts from before there was a home",
            "A deadline counts from the moment a home was given.",
            "            return max(claimant.waiting_since, admitted)\n",
            "            return claimant.waiting_since\n",
        ),
        (
            "who moves for another's sake has waited since never",
            "A deadline counts from the beginning of the wait.",
            "                self.since[victim.id] = since\n",
            "                pass\n",
        ),
        (
            "nobody is the cause",
            "Who has to leave reads for whom.",
            "            since, self.cause[victim.id] = min(claims)\n",
            "            since, _ = min(claims)\n",
        ),
        (
            "who claimed before the sample is not named",
            "The reason names who needed the room although it came before the sample.",
            "            self.cause[victim.id] = max(guaranteed",
            "            _ = max(guaranteed",
        ),
        (
            "the end of a keep wakes nobody",
            "When the time is over a kept notebook yields by itself.",
            "        self.wake_at.append(holder.keep_until)\n        return True",
            "        return True",
        ),
        (
            "a claim waits for nobody",
            "Only a guarantee that waits sets a deadline.",
            "if claimant.id != workload.id and not has_room(self.state, claimant, gpu)",
            "if claimant.id != workload.id",
        ),
    ),
    *mutants_of(
        "core/planning/places/under_way.py",
        (
            "who was chosen is forgotten while it runs a cell",
            "Several that were chosen together move as they were chosen.",
            "if entry.cause in state.workloads or workload.phase in (Phase.SUSPENDING, Phase.SUSPENDED):",
            "if workload.phase in (Phase.SUSPENDING, Phase.SUSPENDED):",
        ),
        (
            "who is off its Gpu is forgotten",
            "Several that were chosen together move as they were chosen.",
            "if entry.cause in state.workloads or workload.phase in (Phase.SUSPENDING, Phase.SUSPENDED):",
            "if entry.cause in state.workloads:",
        ),
        (
            "a wish does not stop who is on the way",
            "A user's wish goes before what was chosen.",
            "workload.current == (entry.bound,) or workload.wish is not None:",
            "workload.current == (entry.bound,):",
        ),
        (
            "who was chosen leaves though nobody needs its place",
            "Who was chosen stays when nobody needs its place in fact.",
            "is None or all(rooms.fits(bound, uuid) for uuid in bound.current):",
            "is None:",
        ),
        (
            "a guarantee waits for burst to go by itself",
            "Who is owed a place on a Gpu goes there beside the requests; who holds burst yields.",
            "if rooms.fits_on_paper(workload, uuid) if owed else rooms.fits(workload, uuid):",
            "if rooms.fits(workload, uuid):",
        ),
        (
            "burst is driven out for burst",
            "Who moves for burst alone drives nobody out.",
            "if rooms.fits_on_paper(workload, uuid) if owed else rooms.fits(workload, uuid):",
            "if rooms.fits_on_paper(workload, uuid):",
        ),
        (
            "burst sets a deadline to who is on the way",
            "Only a guarantee sets a deadline.",
            "    if bound.id in draft.rooms.target and bound.within_request:\n",
            "    if bound.id in draft.rooms.target:\n",
        ),
    ),
]
