"""Breaks of the protocol that are easy to make and hard to see: each takes one promise away, and leaves the rest.

A mutant is lines of one file and what stands there instead. Change those lines, and change them here: a test sees to it
that every mutant still applies. `seen_by` is the unit test that should notice; where it is empty, the drawn histories
should (`python -m tests.mutants`).
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One break."""

    name: str
    promise: str
    """What it breaks, in one sentence."""
    file: str
    """Below `src/quillcast`."""
    before: str
    after: str
    seen_by: str = ""
    """A file below `tests`, or `file::test`."""


MUTANTS = (
    # ---- core
    Mutant(
        "empty-range-within",
        "Ranges are half open: what ends where a question begins has no part in it.",
        "core/ranges.py",
        """        if first >= last:
            return found
        for index in range(bisect_right(self._ends, first), len(self.starts)):
""",
        """        if first >= last:
            return found
        for index in range(bisect_left(self._ends, first), len(self.starts)):
""",
        "core/test_ranges.py::test_what_ends_where_a_question_begins_has_no_part_in_it",
    ),
    Mutant(
        "lone-count-unchecked",
        "A bundle whose head says another count of events than its block holds is refused.",
        "core/bundle.py",
        "        if not 0 < count == events or kind not in _KINDS or counter > NUMBER_MAX:\n",
        "        if not 0 < count or kind not in _KINDS or counter > NUMBER_MAX:\n",
        "core/test_bundle.py::test_a_bundle_that_cannot_be_is_malformed",
    ),
    # ---- overlay
    Mutant(
        "leaf-set-digests-ignored",
        "Neighbours on the ring whose leaf sets differ exchange them.",
        "protocol/overlay/agreement.py",
        "        if theirs.digest != self.leaf_set.digest(right[-1] if right else None):\n",
        "        if not self.leaf_set.digest(right[-1] if right else None):\n",
        "protocol/overlay/test_repair.py::test_differing_digests_lead_to_an_exchange",
    ),
    Mutant(
        "suspected-hop-taken",
        "A message goes around a hop that is suspected.",
        "protocol/overlay/nexthop.py",
        "            if rank < best and node_id not in but and not self.suspected(node_id):\n",
        "            if rank < best and node_id not in but:\n",
        "protocol/overlay/test_routing.py::test_a_hop_that_is_suspected_is_passed_over_while_there_is_another_way",
    ),
    Mutant(
        "older-losses-never-probed",
        "Every peer that was lost is probed in its turn, not only those lost last.",
        "protocol/overlay/lostpeers.py",
        "        for some, count in ((latest, _LATEST_PROBED), (older, 1)):\n",
        "        for some, count in ((latest, _LATEST_PROBED), (older, 0)):\n",
        "protocol/overlay/test_repair.py::test_a_few_lost_peers_are_probed_in_a_round_and_each_in_turn",
    ),
    # ---- neighbours
    Mutant(
        "stale-epoch-obeyed",
        "Words of a former life of a neighbour change nothing.",
        "protocol/neighbours/streams.py",
        "        if told.epoch == epoch and message.after <= told.number:\n",
        "        if message.after <= told.number:\n",
        "protocol/neighbours/test_streams.py::test_what_a_former_life_told_and_the_new_one_does_not_is_dropped",
    ),
    Mutant(
        "marks-compared-by-number",
        "A copy that is as new as its original and not equal to it shows at the next heartbeat.",
        "protocol/neighbours/streams.py",
        "        if told.mark() == (change, digest):\n",
        "        if told.number == change:\n",
        "protocol/neighbours/test_streams.py::test_a_copy_that_is_as_new_and_not_the_same_shows_at_the_next_heartbeat",
    ),
    # ---- forwarding
    Mutant(
        "repairs-skip-the-range-check",
        "A repair that brings nothing new ends here.",
        "protocol/forwarding/flow.py",
        """        if past is None or not past.seen.add(bundle.envelope.first, bundle.last):
            return False
        past.bundles.append(bundle)
""",
        """        if past is None:
            return False
        past.seen.add(bundle.envelope.first, bundle.last)
        past.bundles.append(bundle)
""",
        "protocol/forwarding/test_table.py::test_a_repair_that_brings_nothing_new_ends_here",
    ),
    Mutant(
        "trimmed-past-the-stable-position",
        "A bundle is kept until all of it is stable.",
        "protocol/forwarding/log.py",
        "            if bundle.last > below or left_bytes <= goal_bytes:\n",
        "            if bundle.envelope.first >= below or left_bytes <= goal_bytes:\n",
        "protocol/forwarding/test_table.py::test_a_bundle_is_kept_until_all_of_it_is_stable",
    ),
    Mutant(
        "one-bundle-without-credit",
        "Data needs credit: where there is none left nothing is sent.",
        "protocol/forwarding/channels.py",
        "        while self.cursor < end and host.room(contact) > 0:\n",
        "        while self.cursor < end and host.room(contact) >= 0:\n",
        "protocol/forwarding/test_table.py::test_a_slow_channel_is_served_later_from_the_log_and_holds_up_nobody",
    ),
    Mutant(
        "held-counts-as-covered",
        "What waits behind a hole has not gone out, and is not covered.",
        "protocol/forwarding/edge.py",
        "        return min([line.next, *held]) if held else line.next\n",
        "        return line.next\n",
        "protocol/forwarding/test_edge.py::test_what_is_held_behind_a_hole_has_not_gone_out_and_is_not_covered",
    ),
    Mutant(
        "lease-back-at-once",
        "Whoever was cut has a lease again when it keeps up, and not when it has come where it was.",
        "protocol/forwarding/channels.py",
        "        if position >= frontier or now - self.at <= self.within_s:\n",
        "        if position >= self.mark:\n",
        "protocol/forwarding/test_table.py::test_whoever_was_cut_has_a_lease_again_once_it_reaches_soon_what_was_there_at_one_time",
    ),
    Mutant(
        "let-go-and-taken-up-again",
        "A past term that was let go is taken up again only if it went further.",
        "protocol/forwarding/flow.py",
        "        return term < self.term and end > self.forgotten.get(term, -1)\n",
        "        return term < self.term\n",
        "protocol/forwarding/test_table.py::test_a_term_that_was_let_go_is_taken_up_again_only_if_it_went_further",
    ),
    Mutant(
        "let-go-in-silence",
        "A subscriber is told of what it still had to take of a past term that is let go.",
        "protocol/forwarding/flow.py",
        "                channel.discard_past(term, gone, past.ledger, later)\n",
        "                continue\n",
        "protocol/forwarding/test_table.py::test_a_subscriber_is_told_of_what_it_still_had_to_take_of_a_past_term_that_is_let_go",
    ),
    # ---- reliability
    Mutant(
        "given-up-after-5-s",
        "Of a past term nothing is given up before everybody has refused it for as long as a lease.",
        "protocol/reliability/recovery.py",
        "        gone = gap.nobody_has(owed, now, self.config.lease_s, self.config.give_up_s)\n",
        "        gone = gap.nobody_has(owed, now, 5.0, self.config.give_up_s)\n",
        "protocol/reliability/test_recovery.py::test_what_nobody_has_of_a_past_term_is_given_up_when_that_has_stood_for_a_lease",
    ),
    Mutant(
        "given-up-though-the-parent-may-get-it",
        "In the present term nothing is given up before the parent says that it will not have it again.",
        "protocol/reliability/recovery.py",
        "        final = intersection(lacking, gap.sources[tree.parent.node_id].released)\n",
        "        final = lacking\n",
        "protocol/reliability/test_recovery.py::test_what_the_parent_may_yet_get_is_asked_for_and_not_given_up",
    ),
    Mutant(
        "refusals-teach-nothing",
        "A loss report names the events, if anybody who refused them knows which they were.",
        "protocol/reliability/recovery.py",
        "        tree.learn_runs(message.term, message.runs)\n",
        "",
        "protocol/reliability/test_recovery.py::test_who_refuses_says_whose_events_stood_there_and_a_report_names_them",
    ),
    Mutant(
        "answers-outlive-their-link",
        "What was asked for over a link that is gone is not sent over the next one.",
        "protocol/reliability/recovery.py",
        "        self.unsent.pop(contact.node_id, None)\n",
        "        return\n",
        "protocol/reliability/test_recovery.py::test_what_was_asked_for_over_a_link_that_is_gone_is_not_sent_over_the_next",
    ),
    # ---- topics
    Mutant(
        "no-hold-after-a-pause",
        "A root that stood still calls nothing stable for as long as a lease.",
        "protocol/topics/housekeeping.py",
        "            self.rendezvous.hold(tree, now)\n",
        "",
        "protocol/topics/test_pauses.py::test_a_root_that_stood_still_calls_nothing_stable_for_a_lease_though_all_that_it_knows_have_it",
    ),
    Mutant(
        "past-terms-not-recalled",
        "A subscription begins at the frontier of every term that its parent knows.",
        "protocol/topics/membership.py",
        """        for term, end in message.past:
            self.terms.recall(tree, term, end)
""",
        "",
        "protocol/topics/test_terms.py::test_a_subscription_begins_in_every_term_where_its_parent_knows_that_to_have_gone",
    ),
    Mutant(
        "named-before-it-spoke",
        "A newcomer is named to those above once it has spoken for those below it, and not before.",
        "protocol/topics/tree.py",
        "        return (self.contact.node_id, *self.newcomers) if self.spoken else ()\n",
        "        return (self.contact.node_id, *self.newcomers)\n",
        "protocol/topics/test_terms.py::test_a_newcomer_is_named_once_it_has_spoken_for_those_below_it",
    ),
    Mutant(
        "floor-taken-for-stable",
        "What a publisher has discarded counts as stable for nobody.",
        "protocol/topics/root.py",
        "                admission.expected = floor  # the publisher has nothing below that any more\n",
        "                admission.expected = admission.stable = floor\n",
        "protocol/topics/test_root.py::test_a_floor_is_no_word_on_what_is_stable",
    ),
    Mutant(
        "term-used-before-it-is-noted",
        "A root notes its term with most of those who keep the topic's state before it gives positions under it.",
        "protocol/topics/replication.py",
        "            return 1 + answered >= self.keepers.majority\n",
        "            return True\n",
        "protocol/topics/test_candidacy.py",
    ),
    Mutant(
        "resent-from-where-it-stopped",
        "A publisher sends again what it sent and no root admitted.",
        "protocol/topics/publisher.py",
        "            self.sent = max(min(self.sent, self.admitted), self.retained[0].first)\n",
        "            self.sent = max(self.sent, self.retained[0].first)\n",
        "protocol/topics/test_publisher.py::test_what_no_receipt_came_for_is_sent_again",
    ),
    Mutant(
        "credit-kept-of-what-is-turned-away",
        "What a root turns away while it hands over has left it: its credit goes back.",
        "protocol/topics/intake.py",
        """        if tree.root.closing:
            self.host.release(sender.node_id, bundle.size)
""",
        """        if tree.root.closing:
""",
        "protocol/topics/test_terms.py::test_what_a_root_turns_away_while_it_hands_over_gives_its_credit_back",
    ),
    Mutant(
        "lease-counted-from-the-last-report",
        "The lease of a lost child is counted from its loss.",
        "protocol/topics/children.py",
        "tree.orphan_lease(child, self.host.now() + self.config.lease_s, ",
        "tree.orphan_lease(child, child.moved_at + self.config.lease_s, ",
        "protocol/topics/test_terms.py::test_the_lease_of_a_lost_child_is_counted_from_its_loss",
    ),
    Mutant(
        "another-terms-word-believed",
        "A lease that spoke last of another term, even a later one, says nothing of this one.",
        "protocol/topics/tree.py",
        "            yield (lease.acknowledged if lease.acknowledged_term == term else 0), lease\n",
        "            yield (lease.acknowledged if lease.acknowledged_term >= term else 0), lease\n",
        "protocol/topics/test_terms.py::test_a_child_that_speaks_of_a_later_term_says_nothing_of_this_one",
    ),
    Mutant(
        "half-the-keepers-are-enough",
        "An acknowledgement is marked partitioned unless the root reaches more than half of the topic's keepers.",
        "protocol/topics/keepers.py",
        "        return 2 * len(reached) <= len(lately)\n",
        "        return 2 * len(reached) < len(lately)\n",
        "protocol/topics/test_candidacy.py::test_a_root_that_cannot_reach_most_keepers_marks_its_acknowledgements",
    ),
    Mutant(
        "awaited-named-to-nobody",
        "A root that hands over names those whom the root before it named, and who have not come.",
        "protocol/topics/leadership_transfer.py",
        "        leases = dict(root.awaited)\n",
        "        leases: dict[bytes, None] = {}\n",
        "protocol/topics/test_terms.py::test_a_root_that_hands_over_names_those_whom_it_waits_for_itself",
    ),
    Mutant(
        "named-by-who-left-and-forgotten",
        "A root that hands over names those whom a forwarder named that left.",
        "protocol/topics/leadership_transfer.py",
        "                leases |= dict.fromkeys(other for other in lease.awaited if other != node)\n",
        "                continue\n",
        "protocol/topics/test_terms.py::test_a_root_that_hands_over_names_those_whom_it_waits_for_itself",
    ),
    Mutant(
        "another-descriptor-noted",
        "A keeper counts that noted this very descriptor, and no other of the same term.",
        "protocol/topics/replication.py",
        "                    if (term, digest) == (round_.note[1], descriptor.digest):\n",
        "                    if term == round_.note[1]:\n",
        "protocol/topics/test_candidacy.py::test_a_keeper_counts_that_noted_this_very_descriptor_and_no_other",
    ),
    Mutant(
        "loop-not-left",
        "A peer that finds itself above its parent leaves it.",
        "protocol/topics/reporting.py",
        "        if self.host.me in report.path:\n",
        "        if self.host.me in report.path[:1]:\n",
        "protocol/topics/test_terms.py::test_a_peer_that_finds_itself_above_its_parent_leaves_it",
    ),
    # ---- security
    Mutant(
        "nobodys-events-admitted",
        "Where a list says who publishes, a root admits nothing of a peer that has not shown on whose behalf it does.",
        "protocol/topics/intake.py",
        ' for one in who or {"": None})\n',
        " for one in who) or not who\n",
        "protocol/topics/test_candidacy.py::test_a_root_admits_nothing_of_a_peer_that_has_not_shown_on_whose_behalf_it_publishes",
    ),
    Mutant(
        "warrant-for-any-topic",
        "A warrant lets a peer act for somebody in one topic, and in no other.",
        "protocol/security/access.py",
        "    return _WARRANT + node + topic\n",
        "    return _WARRANT + node\n",
        "protocol/security/test_access.py::test_a_warrant_serves_one_peer_in_one_topic",
    ),
    Mutant(
        "owned-topic-taken-over",
        "A topic that has an owner goes by its owner's word only, whatever the version of another's.",
        "protocol/topics/descriptor.py",
        "            return not other.owner_key\n",
        "            return self.version > other.version\n",
        "protocol/topics/test_two_owners.py::test_an_owners_word_stands_above_nobodys_and_beside_another_owners",
    ),
    Mutant(
        "any-signature-will-do",
        "A descriptor of a topic that has an owner is its owner's word, or counts for nothing.",
        "protocol/topics/descriptor.py",
        " and is_signed(self.owner_key, self.signature, self.statement)\n",
        " and bool(self.signature)\n",
        "protocol/security/test_access.py::test_a_descriptor_of_a_topic_with_an_owner_is_its_owners_word_or_counts_for_nothing",
    ),
)
