-- Writes a scope's mark and says which steps this server holds: one half of a
-- round of acknowledgement. WAIT, sent behind it on the same connection, is the
-- other half: it counts the replicas that have this write, and so all before it.
-- KEYS: the mark, then the nonces of the steps. ARGV: the life of the mark.
-- Reply: for each nonce '1' if the step was applied here, '0' if not.
local held = {}
for i = 2, #KEYS do
  held[#held + 1] = call('GETRANGE', KEYS[i], '0', '0') == 'A' and '1' or '0'
end
call('SET', KEYS[1], '', 'PX', ARGV[1])
return table.concat(held)
