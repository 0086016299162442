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
        "Ranges are half open: a range that ends at the first index is not within.",
        "core/ranges.py",
        """        if first >= last:
            return found
        for index in range(bisect_right(self._ends, first), len(self.starts)):
""",
        """        if first >= last:
            return found
        for index in range(bisect_left(self._ends, first), len(self.starts)):
""",
        "core/test_ranges.py::test_a_range_that_ends_at_the_first_index_is_not_within",
    ),
    Mutant(
        "lone-count-unchecked",
        "A bundle whose head gives another count of events than its block has is rejected.",
        "core/bundle.py",
        "        if not 0 < count == events or kind not in _KINDS or counter > NUMBER_MAX:\n",
        "        if not 0 < count or kind not in _KINDS or counter > NUMBER_MAX:\n",
        "core/test_bundle.py::test_an_invalid_bundle_is_malformed",
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
        "A message bypasses a suspected hop.",
        "protocol/overlay/nexthop.py",
        "            if rank < best and node_id not in but and not self.suspected(node_id):\n",
        "            if rank < best and node_id not in but:\n",
        "protocol/overlay/test_routing.py::test_a_suspected_hop_is_bypassed_if_there_is_another_way",
    ),
    Mutant(
        "older-losses-never-probed",
        "Every lost peer is probed in turn, not only the latest losses.",
        "protocol/overlay/lostpeers.py",
        "        for some, count in ((latest, _LATEST_PROBED), (older, 1)):\n",
        "        for some, count in ((latest, _LATEST_PROBED), (older, 0)):\n",
        "protocol/overlay/test_repair.py::test_each_round_probes_a_few_lost_peers_in_turn",
    ),
    # ---- neighbours
    Mutant(
        "stale-epoch-obeyed",
        "Late messages of an earlier incarnation of a neighbour change nothing.",
        "protocol/neighbours/streams.py",
        "        if incoming.epoch == epoch and message.after <= incoming.number:\n",
        "        if message.after <= incoming.number:\n",
        "protocol/neighbours/test_streams.py::test_entries_of_an_earlier_incarnation_are_dropped_if_not_sent_again",
    ),
    Mutant(
        "marks-compared-by-number",
        "A copy that is up to date but differs from its original is detected at the next heartbeat.",
        "protocol/neighbours/streams.py",
        "        if incoming.mark() == (change, digest):\n",
        "        if incoming.number == change:\n",
        "protocol/neighbours/test_streams.py::test_a_copy_that_is_up_to_date_but_differs_is_detected_at_the_next_heartbeat",
    ),
    # ---- forwarding
    Mutant(
        "passed-over-taken-for-had",
        "Events that seemed not to be owed, and were passed over, are waited for in other terms.",
        "protocol/forwarding/edge.py",
        "        return cursor.passed_over.missing(max(first, cursor.began[1]), min(last, cursor.next or 0))\n",
        "        return NO_RANGES.missing(max(first, cursor.began[1]), min(last, cursor.next or 0))\n",
        "protocol/forwarding/test_edge.py",
    ),
    Mutant(
        "repairs-skip-the-range-check",
        "A repair with nothing new ends here.",
        "protocol/forwarding/flow.py",
        """        if past is None or not past.add(bundle):
            return False
        past.bundles.append(bundle)
""",
        """        if past is None:
            return False
        past.add(bundle)
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
        "Data needs credit: without credit nothing is sent.",
        "protocol/forwarding/channels.py",
        "        while self.cursor < log.end and not self.backlog and room() > 0:\n",
        "        while self.cursor < log.end and not self.backlog and room() >= 0:\n",
        "protocol/forwarding/test_table.py::test_a_slow_channel_is_served_later_from_the_log_and_delays_no_other",
    ),
    Mutant(
        "awaited-taken-for-delivered",
        "What is lost before the first event of a publisher is reported, even while that event is awaited.",
        "protocol/forwarding/edge.py",
        "            known = cursor.next if cursor.began is not None else None  # else it is one that is awaited\n",
        "            known = cursor.next\n",
        "protocol/forwarding/test_edge.py",
    ),
    Mutant(
        "hole-ascribed-out-of-order",
        "A missing event is no lost position that lies before an earlier event of its publisher.",
        "protocol/forwarding/doubts.py",
        "        return _size(self.lost.within(at, end) if came <= first else self.lost.within(0, min(at, end)))\n",
        "        return _size(self.lost.within(0, end) if came <= first else self.lost.within(0, min(at, end)))\n",
        "protocol/forwarding/test_edge.py",
    ),
    Mutant(
        "held-counts-as-acknowledged",
        "Events that wait behind a hole were not delivered, and are not acknowledged.",
        "protocol/forwarding/edge.py",
        "        return min([term_cursor.next, *held])\n",
        "        return term_cursor.next\n",
        "protocol/forwarding/test_edge.py::test_events_held_behind_a_hole_are_not_delivered_and_not_acknowledged",
    ),
    Mutant(
        "lease-back-at-once",
        "A cut receiver has a lease again when it catches up, not when it reaches the position of the cut.",
        "protocol/topics/state/cut.py",
        "        if position >= frontier or now - self.at <= self.within_s:\n",
        "        if position >= self.mark:\n",
        "protocol/topics/test_flow_control.py::test_a_cut_receiver_has_a_lease_again_once_it_catches_up",
    ),
    Mutant(
        "little-topics-held-up",
        "Topics that keep little go on while others keep the buffers full.",
        "protocol/topics/state/flow_control.py",
        "        if self._goes_on(topic):\n",
        "        if not self._goes_on(topic):\n",
        "protocol/topics/test_flow_control.py::test_topics_that_keep_little_together_go_on_while_another_keeps_the_buffers_full",
    ),
    Mutant(
        "admitted-again-and-kept-twice",
        "What a later term admitted again is not kept of the earlier one where room is scarce.",
        "protocol/forwarding/flow.py",
        "            return bundle.last > past.stable and not all(\n",
        "            return bundle.last > past.stable or not all(\n",
        "protocol/forwarding/test_ledger.py::test_what_a_later_term_admitted_again_is_not_needed_of_a_past_one",
    ),
    Mutant(
        "discarded-term-recalled",
        "A discarded past term is recalled only if it went further.",
        "protocol/forwarding/flow.py",
        "        return term < self.term and self.live(term) is None and end > self.forgotten.get(term, -1)\n",
        "        return term < self.term and self.live(term) is None\n",
        "protocol/forwarding/test_table.py::test_a_discarded_term_is_recalled_only_if_it_went_further",
    ),
    Mutant(
        "discarded-in-silence",
        "When a past term is discarded, subscribers are told what they had not taken yet.",
        "protocol/forwarding/flow.py",
        "                channel.discard_past(term, gone, past.ledger, others)\n",
        "                continue\n",
        "protocol/forwarding/test_table.py::test_discarding_a_past_term_reports_what_a_subscriber_had_not_taken",
    ),
    # ---- reliability
    Mutant(
        "given-up-after-5-s",
        "Ranges of a past term are given up only after all sources have refused them for the time of a lease.",
        "protocol/reliability/recovery.py",
        "        gone = gap.nobody_has(owed, now, self.times.lease_s, self.times.give_up_s, settled)\n",
        "        gone = gap.nobody_has(owed, now, 5.0, self.times.give_up_s, settled)\n",
        "protocol/reliability/test_recovery.py::test_missing_ranges_of_a_past_term_are_given_up_after_the_time_of_a_lease",
    ),
    Mutant(
        "given-up-though-the-parent-may-get-it",
        "Ranges of the current term are given up only after the parent says that it will not have them again.",
        "protocol/reliability/recovery.py",
        "            final, for_s = intersection(missing, gap.repairers[authority].released), 0.0\n",
        "            final, for_s = missing, 0.0\n",
        "protocol/reliability/test_recovery.py::test_ranges_that_the_parent_may_still_get_are_requested_and_not_given_up",
    ),
    Mutant(
        "refusals-teach-nothing",
        "A loss report names the events if any peer that refused them knows them.",
        "protocol/reliability/recovery.py",
        "        if news := group.flow.learn_runs(message.term, message.runs):\n"
        "            self._pass_on_runs(group, message.term, news, sender)\n",
        "",
        "protocol/reliability/test_recovery.py::test_a_refusal_names_the_lost_events_and_so_does_the_loss_report",
    ),
    Mutant(
        "answers-outlive-their-link",
        "Requests over a lost link are not answered over the next one.",
        "protocol/reliability/recovery.py",
        "        self.unsent.pop(contact.node_id, None)\n",
        "        return\n",
        "protocol/reliability/test_recovery.py::test_requests_over_a_lost_link_are_not_answered_over_the_next",
    ),
    # ---- topics
    Mutant(
        "no-hold-after-a-pause",
        "After a pause, a root declares nothing stable for the length of a lease.",
        "protocol/topics/housekeeping.py",
        "            self.dispatch.order(ProcessPaused(tree))\n",
        "",
        "protocol/topics/test_pauses.py::test_after_a_pause_a_root_declares_nothing_stable_for_a_lease",
    ),
    Mutant(
        "past-terms-not-recalled",
        "A subscription begins at the frontier of every term that its parent knows.",
        "protocol/topics/membership/membership.py",
        """        for term, end in message.past:
            self.terms.recall(tree, term, end)
""",
        "",
        "protocol/topics/test_terms.py::test_a_subscription_begins_in_every_term_where_its_parent_knows_that_to_have_gone",
    ),
    Mutant(
        "only-the-root-is-asked",
        "A peer that the root does not answer asks those beside it.",
        "protocol/topics/membership/membership.py",
        "        if tree.attempt > UNANSWERED and others:\n",
        "        if False and others:\n",
        "protocol/topics/test_trees.py::test_a_peer_that_cannot_reach_the_root_gets_all_events_through_another",
    ),
    Mutant(
        "referred-to-who-is-silent",
        "A full peer takes in who can reach none of its children.",
        "protocol/topics/state/scribe_tree.py",
        "if contact.node_id not in silent]",
        "if contact.node_id]",
        "protocol/topics/test_trees.py::test_a_full_root_takes_in_a_peer_that_cannot_reach_its_child",
    ),
    Mutant(
        "past-root-terms-not-owed-by-source",
        "What a root numbered is owed where the sources number a topic's events now.",
        "protocol/topics/state/tree.py",
        "        if self.flow.keeps and past.end:\n",
        "        if False and past.end:\n",
        "protocol/topics/test_sources.py"
        "::test_who_made_a_topic_one_of_sources_is_told_of_what_a_root_called_stable_beyond_a_partition",
    ),
    Mutant(
        "named-before-it-spoke",
        "A newcomer is named to those above once it has spoken for those below it, and not before.",
        "protocol/topics/state/holders.py",
        "        return (self.contact.node_id, *self.others.nodes) if self.spoken == SINCE else ()\n",
        "        return (self.contact.node_id, *self.others.nodes)\n",
        "protocol/topics/test_restarts.py",
    ),
    Mutant(
        "old-arrival-ends-a-later-lease",
        "A lease at a former parent ends only once a later parent speaks for the peer.",
        "protocol/topics/state/link_reports.py",
        " and same_life(self.number, other.number) and self.number > other.number\n",
        "\n",
        "protocol/topics/test_invitations.py::test_an_old_word_of_an_arrival_ends_no_lease_of_a_later_move",
    ),
    Mutant(
        "restarted-child-ends-a-lease",
        "A peer that was restarted does not speak for those that were below it.",
        "protocol/topics/membership/whereabouts.py",
        "            if not self.membership.is_of_this_life(number):\n",
        "            if not number:\n",
        "protocol/topics/test_whereabouts.py::"
        "test_a_peer_that_was_restarted_since_does_not_speak_for_those_that_were_below_it",
    ),
    Mutant(
        "number-of-an-earlier-run",
        "A child that was taken back without a Join gets no number from a run before its restart.",
        "protocol/topics/state/link_reports.py",
        "    return bool(incarnation) and 0 <= number - first_number(incarnation) < LIVES_MAX << COUNT_BITS\n",
        "    return number > 0\n",
        "protocol/topics/test_whereabouts.py",
    ),
    Mutant(
        "numbered-by-an-old-word",
        "A child that was taken back without a Join is named by the number that it says only once it speaks again.",
        "protocol/topics/membership/children.py",
        "            child.number, child.spoken = number, BEFORE\n",
        "            child.number = number\n",
        "protocol/topics/test_whereabouts.py",
    ),
    Mutant(
        "outside-before-inside",
        "A peer outside a scope is asked only for what its members have refused.",
        "protocol/reliability/recovery.py",
        "        repairers = [*_inside(findings), *peers.above]\n",
        "        repairers = [*peers.above, *_inside(findings)]\n",
        "protocol/test_recovery_domains.py",
    ),
    Mutant(
        "floor-taken-for-stable",
        "What a publisher has discarded counts as stable for nobody.",
        "protocol/topics/state/admitter.py",
        "                admission.expected = floor  # the publisher has nothing below that any more\n",
        "                admission.expected = admission.stable = floor\n",
        "protocol/topics/test_root.py::test_a_floor_does_not_imply_stability",
    ),
    Mutant(
        "term-used-before-it-is-noted",
        "A root notes its term with most of those who keep the topic's state before it gives positions under it.",
        "protocol/topics/root/replication.py",
        "            return 1 + answered >= self.replica_set.majority\n",
        "            return True\n",
        "protocol/topics/test_candidacy.py",
    ),
    Mutant(
        "resent-from-where-it-stopped",
        "A publisher sends again what it sent and no root admitted.",
        "protocol/topics/publishing/publisher.py",
        "            self.sent = max(min(self.sent, self.admitted), self.retained[0].first)\n",
        "            self.sent = max(self.sent, self.retained[0].first)\n",
        "protocol/topics/test_publisher.py::test_what_no_receipt_came_for_is_sent_again",
    ),
    Mutant(
        "credit-kept-of-what-is-turned-away",
        "Bundles that a root rejects during a transfer have left it: their credit goes back.",
        "protocol/topics/root/intake.py",
        """        if tree.root.closing:
            self.host.release(sender.node_id, bundle.size)
""",
        """        if tree.root.closing:
""",
        "protocol/topics/test_terms.py::test_bundles_rejected_during_a_transfer_return_their_credit",
    ),
    Mutant(
        "lease-counted-from-the-last-report",
        "The lease of a lost child is counted from its loss.",
        "protocol/topics/membership/children.py",
        "            until = self.host.now() + self.config.lease_s\n",
        "            until = child.moved_at + self.config.lease_s\n",
        "protocol/topics/test_terms.py::test_the_lease_of_a_lost_child_is_counted_from_its_loss",
    ),
    Mutant(
        "another-terms-word-believed",
        "A lease that spoke last of another term, even a later one, says nothing of this one.",
        "protocol/topics/state/holders.py",
        "    if holder.acknowledged_term == term:\n        return holder.acknowledged\n    report",
        "    if holder.acknowledged_term >= term:\n        return holder.acknowledged\n    report",
        "protocol/topics/test_terms.py::test_a_report_about_a_later_term_says_nothing_about_this_one",
    ),
    Mutant(
        "half-the-replicas-are-enough",
        "An acknowledgement is marked partitioned unless the root reaches more than half of the topic's replicas.",
        "protocol/topics/state/replica_set.py",
        "        return 2 * len(reached) <= len(lately)\n",
        "        return 2 * len(reached) < len(lately)\n",
        "protocol/topics/test_candidacy.py::test_a_root_without_a_majority_of_replicas_marks_its_acknowledgements",
    ),
    Mutant(
        "first-childrens-events-as-own",
        "A forwarder that was restarted does not speak for those that were below it, even if others have joined it.",
        "protocol/topics/state/tree.py",
        "        return replace(least, own=False) if least is not None else None\n",
        "        return least\n",
        "protocol/topics/test_restarts.py",
    ),
    Mutant(
        "restarted-mover-believed",
        "A peer that was restarted before it moved does not speak for those that were below it.",
        "protocol/topics/state/tree.py",
        "            if any(lease.is_of_another_life(move) for lease in self.orphaned_leases.values()):\n",
        "            if not move:\n",
        "protocol/topics/test_restarts.py",
    ),
    Mutant(
        "restarted-child-believed",
        "A child that was restarted, and comes from another parent, does not speak for those that were below it.",
        "protocol/topics/membership/joins.py",
        "        if join.is_new or _is_of_another_life(tree, join):\n",
        "        if join.is_new:\n",
        "protocol/topics/test_restarts.py",
    ),
    Mutant(
        "old-word-believed",
        "What a child said before it came does not speak for those that were below it.",
        "protocol/topics/state/holders.py",
        "        own = self.move if self.spoken == SINCE and self.named_until else None\n",
        "        own = self.move if self.spoken and self.named_until else None\n",
        "protocol/topics/test_restarts.py",
    ),
    Mutant(
        "restarted-named-believed",
        "Of peers that were named before they were restarted, those below them are waited for.",
        "protocol/topics/state/root.py",
        "        return number > 0 and not same_life(number, move.number)\n",
        "        return False\n",
        "protocol/topics/test_restarts.py",
    ),
    Mutant(
        "rivals-leases-unknown",
        "Who is handed a topic while it is in the tree of a rival waits for the leases there.",
        "protocol/topics/root/leadership_transfer.py",
        "            hold_s = self.config.lease_s if _has_rival(tree, message) else message.hold_s\n",
        "            hold_s = message.hold_s\n",
        "protocol/topics/test_intake.py",
    ),
    Mutant(
        "awaited-named-to-nobody",
        "A leadership transfer names the peers that the previous root named and that have not arrived.",
        "protocol/topics/root/leadership_transfer.py",
        "        leases = dict(root.awaited)\n",
        "        leases: dict[bytes, int] = {}\n",
        "protocol/topics/test_terms.py::test_a_leadership_transfer_names_the_peers_that_the_root_still_waits_for",
    ),
    Mutant(
        "named-by-who-left-and-forgotten",
        "A leadership transfer names the peers that a leaving forwarder named.",
        "protocol/topics/root/leadership_transfer.py",
        "                leases |= {other: lease.numbers.get(other, 0) for other in lease.awaited if other != node}\n",
        "                continue\n",
        "protocol/topics/test_terms.py::test_a_leadership_transfer_names_the_peers_that_the_root_still_waits_for",
    ),
    Mutant(
        "another-descriptor-noted",
        "A replica counts only if it recorded this very descriptor, not another one of the same term.",
        "protocol/topics/root/replication.py",
        "                    if (term, digest) == (round_.note[1], descriptor.digest):\n",
        "                    if term == round_.note[1]:\n",
        "protocol/topics/test_candidacy.py::test_a_replica_counts_only_if_it_recorded_this_very_descriptor",
    ),
    Mutant(
        "loop-not-left",
        "A peer that finds itself above its parent leaves it.",
        "protocol/topics/membership/reporting.py",
        "        if self.host.me in report.path or ",
        "        if self.host.me in report.path[:1] or ",
        "protocol/topics/test_terms.py::test_a_peer_that_finds_itself_above_its_parent_leaves_it",
    ),
    # ---- security
    Mutant(
        "nobodys-events-admitted",
        "Where a list says who publishes, a root admits nothing of a peer that has not shown on whose behalf it does.",
        "protocol/topics/root/intake.py",
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
        "protocol/topics/test_two_owners.py::test_an_owners_descriptor_supersedes_an_unowned_one_and_rivals_another_owners",
    ),
    Mutant(
        "any-signature-will-do",
        "A descriptor of a topic that has an owner is its owner's word, or counts for nothing.",
        "protocol/topics/descriptor.py",
        " and is_signed(self.owner_key, self.signature, self.statement)\n",
        " and bool(self.signature)\n",
        "protocol/security/test_access.py::test_an_owned_topics_descriptor_is_valid_only_if_its_owner_signed_it",
    ),
    # ---- sources
    Mutant(
        "admitted-without-a-second-peer",
        "What a source published is acknowledged as admitted when another peer has it.",
        "protocol/topics/state/source.py",
        "for end, last in admission.runs if end <= self.held]\n",
        "for end, last in admission.runs]\n",
        "protocol/topics/test_sources.py::test_an_event_is_admitted_when_a_second_peer_has_it",
    ),
    Mutant(
        "back-where-it-came-from",
        "A stream does not go back over the edge that it came by.",
        "protocol/topics/state/sources.py",
        "            if stream is not None and stream.via == node:\n",
        "            if stream is None:\n",
        "protocol/topics/test_sources.py::test_no_event_goes_back_where_it_came_from",
    ),
    Mutant(
        "ended-before-the-lease",
        "The stream of a source that is gone ends one lease later, and not before.",
        "protocol/topics/state/source_streams.py",
        "now >= max(state.gone_since, root.began_at) + self.config.lease_s and",
        "now >= max(state.gone_since, root.began_at) and",
        "protocol/topics/test_sources.py::test_the_stream_of_a_source_that_died_ends_after_its_lease_and_is_forgotten",
    ),
    Mutant(
        "declared-end-kept",
        "The declared end of a stream moves while later events come to be known.",
        "protocol/topics/state/source_streams.py",
        "and state.end != known_end(tree, term):",
        "and state.end is None:",
        "protocol/topics/test_stream_reporting.py::test_the_end_of_a_stream_moves_when_a_child_knows_of_later_events",
    ),
    Mutant(
        "strangers-streams-taken",
        "Where a list says who publishes, no peer takes the stream of a source that has not shown a warrant on it.",
        "protocol/topics/state/source_streams.py",
        '        if who and descriptor.refusal("publish", who) is None:\n',
        "        if True:\n",
        "protocol/topics/test_sources.py"
        "::test_neighbours_take_nothing_from_a_source_that_does_not_look_at_the_list_itself",
    ),
    Mutant(
        "neighbours-speak-for-the-source",
        "What neighbours discarded is lost only when the source itself has discarded it.",
        "protocol/reliability/recovery.py",
        "            authority = SOURCE if term.of_source else upstream.node_id\n",
        "            authority = upstream.node_id\n",
        "protocol/reliability/test_groups.py"
        "::test_what_all_members_discarded_is_asked_of_the_source_and_its_word_is_final",
    ),
    Mutant(
        "older-events-owed",
        "Of a stream that is learned late, what came before a subscription is not lost to it.",
        "protocol/topics/state/source_streams.py",
        '        if subscription.wish.start == "earliest" or not subscription.pass_by(term, start):\n',
        "        if True:\n",
        "protocol/topics/test_ended_streams.py"
        "::test_of_a_stream_that_is_learned_late_only_what_came_since_it_began_is_lost_to_a_subscription",
    ),
    Mutant(
        "events-taken-for-older",
        "An event that came after a subscription began is owed, however late its stream is learned.",
        "protocol/forwarding/milestones.py",
        "part.times = self.indexes[begin:end], self.times[begin:end]\n",
        "part.times = self.indexes[begin:end], self.times[begin - 1 : end - 1]\n",
        "protocol/forwarding/test_milestones.py"
        "::test_who_misses_a_range_is_told_of_it_alone_and_takes_its_events_for_younger_than_they_are",
    ),
    Mutant(
        "known-holders-outlive-a-refusal",
        "What a member said that it holds, and refuses, is asked of others.",
        "protocol/reliability/recovery.py",
        "                believed.update(difference(ranges, RangeSet(gap.refused_by(contact.node_id, ranges))))\n",
        "                believed.update(ranges)\n",
        "protocol/reliability/test_groups.py::test_what_a_member_does_not_have_after_all_is_asked_of_others",
    ),
    Mutant(
        "one-lap-is-enough",
        "A member has asked all others only when the token has come round to it again.",
        "protocol/reliability/protocols/token_ring.py",
        "        self.round = TokenRound(token.starter, token.serial, self.host.now(), entered)\n",
        "        self.round = TokenRound(token.starter, token.serial, self.host.now(), entered)\n"
        "        self.sought.update(entered)\n",
        "protocol/reliability/test_protocols.py",
    ),
    # ---- scopes
    Mutant(
        "any-origin-without-a-pair",
        "A record without a pair for a channel's level means that the bundle originated at the channel's source.",
        "protocol/scopes/records.py",
        "        return begins and (origin is None or origin == channel.source[0])\n",
        "        return begins\n",
        "protocol/scopes/test_records.py"
        "::test_without_a_pair_for_its_level_a_channel_takes_what_originated_at_its_source",
    ),
    Mutant(
        "policies-change-at-once",
        "Old channels stay until all members have the new ones.",
        "protocol/scopes/swaps.py",
        "            self.running[topic] = Swap(wanted, (self.version(topic) + 1) % VERSIONS, now)\n",
        "            self.in_force[topic] = wanted\n",
        "protocol/scopes/test_swaps.py::test_old_channels_carry_bundles_until_all_members_have_the_new_ones",
    ),
    Mutant(
        "repairs-keep-a-record",
        "A repair begins at whoever gets it: its record would say that it should be at the peer that sent it.",
        "protocol/forwarding/flow.py",
        ', kind=REPAIR, record=b"")) for',
        ", kind=REPAIR)) for",
        "protocol/scopes/test_installing.py::test_a_repair_has_no_record",
    ),
    Mutant(
        "bundles-return-to-their-scope",
        "A bundle does not return to where it originated.",
        "protocol/scopes/records.py",
        " or pair.origin in channel.target[:1]:\n",
        ":\n",
        "protocol/scopes/test_composition.py::test_a_redundant_policy_around_a_tree_for_each_origin_reaches_all",
    ),
    Mutant(
        "same-epoch-after-a-crash",
        "A manager that comes back has a higher epoch.",
        "protocol/scopes/state.py",
        "        self.epoch += 1\n",
        "",
        "protocol/scopes/test_manager.py::test_after_a_crash_it_is_the_same_manager_with_a_higher_epoch",
    ),
    Mutant(
        "old-orders-obeyed",
        "Orders of a lower epoch are not obeyed.",
        "protocol/scopes/membership.py",
        "        if owner is None or (orders.epoch, orders.number) <= owner.stamp:\n",
        "        if owner is None:\n",
        "protocol/scopes/test_manager.py::test_orders_and_answers_of_an_old_epoch_change_nothing",
    ),
    Mutant(
        "delegates-receive-nothing",
        "Who passes a channel on for its scope receives all bundles of the topic.",
        "protocol/scopes/composition.py",
        "*self.kept.delegates, *goes_out, *serving",
        "*goes_out, *serving",
        "protocol/scopes/test_manager.py::test_who_passes_a_channel_on_receives_what_all_members_publish",
    ),
    Mutant(
        "positions-for-serials",
        "Filters divide bundles by their number, whatever the positions of their events.",
        "protocol/scopes/filters.py",
        "            return lambda envelope: envelope.serial % n in kept\n",
        "            return lambda envelope: envelope.first % n in kept\n",
        "protocol/scopes/test_filters.py"
        "::test_modulo_divides_bundles_by_their_number_and_not_by_the_positions_of_their_events",
    ),
    Mutant(
        "assignment-order-matters",
        "A policy answers the same in whatever order standing channels are told.",
        "protocol/scopes/policies/links.py",
        "    return sorted(by_origin.get(nodes[0]) or by_origin.get(another, []))\n",
        "    return by_origin.get(nodes[0]) or by_origin.get(another, [])\n",
        "protocol/scopes/test_conformance.py::test_built_in_policies_keep_the_rules",
    ),
    Mutant(
        "empty-places-in-trees",
        "When a member leaves, a leaf takes its place, and its children keep their depth.",
        "protocol/scopes/policies/links.py",
        "    tree = grown(nodes, _refilled(nodes, standing), children_max)\n",
        "    tree = grown(nodes, standing, children_max)\n",
        "protocol/scopes/policies/test_shapes.py::test_a_small_change_of_the_group_changes_few_channels",
    ),
    Mutant(
        "one-seed-for-sets",
        "The two processes of a policy that is checked order their sets differently.",
        "cli/scope.py",
        "check_rules(instance(0), instance(1), customs=filters)",
        "check_rules(instance(0), instance(0), customs=filters)",
        "cli/test_scope.py::test_a_policy_that_depends_on_the_order_of_a_set_is_noticed",
    ),
    Mutant(
        "strangers-from-outside",
        "What a policy of another package answers is checked.",
        "live/scopes/confined.py",
        "            check_channels(group, answer.channels, answer.bound, self.mechanism)\n",
        "            pass\n",
        "live/scopes/test_confined.py::test_a_policy_that_goes_wrong_is_stopped_with_one_line",
    ),
    Mutant(
        "children-off-the-list",
        "A child that was taken off the list of subscribers gets nothing more.",
        "protocol/topics/membership/children.py",
        "                child.right = BARRED\n",
        "                pass\n",
        "protocol/topics/test_restricted.py::test_a_child_that_stays_although_it_was_taken_off_the_list_gets_nothing_more_and_holds_nobody_up",
    ),
    Mutant(
        "sources-off-the-list",
        "Peers take nothing more from a source that was taken off the list of publishers.",
        "protocol/forwarding/flow.py",
        "            stream is not None and stream.barred and stream.is_beyond(sender, bundle)\n",
        "            False\n",
        "protocol/topics/test_sessions.py::test_peers_take_nothing_from_a_source_that_heeds_neither_the_list_nor_their_refusals",
    ),
    Mutant(
        "agents-without-a-limit",
        "A recovery agent whose call never ends is stopped.",
        "live/scopes/agents.py",
        "            self.patience = self.line.wait(limit_s, lambda",
        "            self.patience = self.line.wait(3600.0, lambda",
        "live/scopes/test_agents.py::test_an_agent_has_one_order_at_a_time_and_a_limit_for_each",
    ),
    Mutant(
        "any-file-for-a-pin",
        "A file that changed after it was pinned is not run.",
        "live/scopes/plugins.py",
        "    if found != sha256:\n",
        "    if False:\n",
        "live/scopes/test_plugins.py::test_a_file_that_changed_after_it_was_pinned_is_not_run",
    ),
    Mutant(
        "earlier-term-not-owed",
        "A subscription is owed an earlier term that was not over when it began.",
        "protocol/topics/state/tree.py",
        "        if past.came.at <= subscription.began_at:\n",
        "        if True:\n",
        "protocol/topics/test_term_changes.py",
    ),
    Mutant(
        "any-term-is-believed",
        "Terms of others that there cannot be yet are ignored.",
        "protocol/topics/state/terms.py",
        "        return False\n\n    def has_settings",
        "        return True\n\n    def has_settings",
        "protocol/topics/test_plausible.py::test_a_message_with_a_term_or_version_beyond_the_bound_is_ignored",
    ),
    Mutant(
        "questions-of-anybody",
        "Who is in the tree of a topic that names its subscribers is told only to those on its list.",
        "protocol/topics/inspection.py",
        "        if not self._may_see(tree, message):\n            if tree.root is not None:\n",
        "        if False:\n            if tree.root is not None:\n",
        "protocol/topics/test_restricted.py::test_only_those_on_the_list_are_told_who_is_in_the_tree_and_what_becomes_of_a_bundle",
    ),
    Mutant(
        "guests-of-anybody",
        "No peer has a client of another peer served.",
        "protocol/scopes/direct.py",
        "        if not is_client_of(message.client, host.node_id):\n",
        "        if False:\n",
        "protocol/scopes/test_direct.py::test_no_peer_announces_the_clients_of_another",
    ),
    Mutant(
        "guests-without-a-secret",
        "A direct client is let in only with the secret that its host announced.",
        "protocol/scopes/direct.py",
        "        if guest is None or digest(secret) not in guest.secrets:\n",
        "        if guest is None:\n",
        "protocol/scopes/test_direct.py::"
        "test_a_client_that_its_host_announced_is_let_in_once_with_its_secret_and_does_what_was_announced",
    ),
    # ---- terms that a peer does not know yet
    Mutant(
        "past-terms-end-in-a-pause",
        "What a subscriber misses of a past term is not given up because its process was paused.",
        "protocol/topics/housekeeping.py",
        "            past.until = max(past.until, until)\n",
        "            past.until = past.until\n",
        "protocol/topics/test_pauses.py",
    ),
    Mutant(
        "subscriptions-after-a-pause",
        "After a pause, no subscription begins before it is known whether the topic has another root.",
        "protocol/topics/state/tree.py",
        "        return self.attached and self.served and not self.doubted\n",
        "        return self.attached and self.served\n",
        "protocol/topics/test_pauses.py::"
        "test_a_subscription_that_begins_right_after_a_pause_is_told_of_nothing_from_before",
    ),
    Mutant(
        "disowned-terms",
        "Nothing is taken of a root that knew no owner, where a list says who may publish.",
        "protocol/forwarding/table.py",
        "        if flow is not None and flow.counted & RESTRICTED and flow.denies(",
        "        if flow is not None and not flow.counted & RESTRICTED and flow.denies(",
        "protocol/forwarding/test_table.py::"
        "test_where_a_list_says_who_may_publish_nothing_of_a_root_that_knew_no_owner_is_taken_or_passed_on",
    ),
    Mutant(
        "admitted-again-called-gone",
        "Nothing is called gone that a later term admitted again.",
        "protocol/reliability/recovery.py",
        "            released = difference(released, RangeSet(again))  # not lost",
        "            released = [*released]  # not lost",
        "protocol/reliability/test_recovery.py::"
        "test_discarded_events_that_a_later_term_admitted_again_are_not_called_gone",
    ),
    Mutant(
        "asked-of-ended-terms",
        "What comes of an ended term goes on to those who asked for it, at once.",
        "protocol/reliability/recovery.py",
        "            if wanted.within(first, last) and not has and",
        "            if wanted.within(first, last) and has and",
        "protocol/reliability/test_recovery.py::"
        "test_what_comes_of_an_ended_term_goes_at_once_to_those_who_asked_for_it",
    ),
)
