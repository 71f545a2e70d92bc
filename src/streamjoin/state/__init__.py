"""The log-structured store of one bucket: sorted runs in tiers, tombstones, compaction, a manifest, spill."""
