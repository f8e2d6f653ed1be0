CREATE TABLE sayso_chains (
    chain integer NOT NULL,
    seq bigint NOT NULL,
    previous text NOT NULL COLLATE pg_catalog."C",
    hash text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sayso_contents (
    id text NOT NULL COLLATE pg_catalog."C",
    doc text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sayso_log (
    chain integer NOT NULL,
    seq bigint NOT NULL,
    at double precision NOT NULL,
    previous text NOT NULL COLLATE pg_catalog."C",
    hash text NOT NULL COLLATE pg_catalog."C",
    entry text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sayso_meta (
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sayso_proposals (
    id text NOT NULL COLLATE pg_catalog."C",
    turn text COLLATE pg_catalog."C",
    conversation text COLLATE pg_catalog."C",
    reference text COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    owner text COLLATE pg_catalog."C",
    lease double precision,
    created double precision NOT NULL,
    "position" bigint NOT NULL,
    ended double precision,
    kept integer NOT NULL,
    doc text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sayso_turns (
    id text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    owner text COLLATE pg_catalog."C",
    lease double precision,
    created double precision NOT NULL,
    ended double precision,
    doc text NOT NULL COLLATE pg_catalog."C"
);
INSERT INTO sayso_chains VALUES (1, 0, '', '0000000000000000000000000000000000000000000000000000000000000001');
INSERT INTO sayso_chains VALUES (2, 0, '', '0000000000000000000000000000000000000000000000000000000000000002');
INSERT INTO sayso_chains VALUES (6, 0, '', '0000000000000000000000000000000000000000000000000000000000000006');
INSERT INTO sayso_chains VALUES (7, 0, '', '0000000000000000000000000000000000000000000000000000000000000007');
INSERT INTO sayso_chains VALUES (9, 0, '', '0000000000000000000000000000000000000000000000000000000000000009');
INSERT INTO sayso_chains VALUES (10, 0, '', '000000000000000000000000000000000000000000000000000000000000000a');
INSERT INTO sayso_chains VALUES (11, 0, '', '000000000000000000000000000000000000000000000000000000000000000b');
INSERT INTO sayso_chains VALUES (13, 0, '', '000000000000000000000000000000000000000000000000000000000000000d');
INSERT INTO sayso_chains VALUES (14, 0, '', '000000000000000000000000000000000000000000000000000000000000000e');
INSERT INTO sayso_chains VALUES (15, 0, '', '000000000000000000000000000000000000000000000000000000000000000f');
INSERT INTO sayso_chains VALUES (16, 0, '', '0000000000000000000000000000000000000000000000000000000000000010');
INSERT INTO sayso_chains VALUES (3, 1, '0000000000000000000000000000000000000000000000000000000000000003', '31146a6eab7d963afaa7d394074c3ec758b5e5370d85c5bc4d121199dc385c43');
INSERT INTO sayso_chains VALUES (8, 1, '0000000000000000000000000000000000000000000000000000000000000008', '49da4366f3f8c175c51710e651f47db2175f4005cbfaaca40fae56a7ce6cb969');
INSERT INTO sayso_chains VALUES (5, 6, '318b43ee6fe98b29953d2ff57dd5a1952cedbbbffad2b0b425eea599264a6293', '451a5b0afd94b5974c96b300302d8fd5e72c1783ae6e8dbeb8f975ce50f2a3cb');
INSERT INTO sayso_chains VALUES (12, 6, '3721c579788d69528a544fb472e14948c44f0a5d3b544c10a7f25046049e5bb6', '93fac265bec48368d72962de710a64de67f46df1289a6b8bee26642fb59e5df4');
INSERT INTO sayso_chains VALUES (4, 4, '4ced6694a98c0a5bb983457c49a201fc93ee2e9ac424c9ef5d402f1b418649eb', 'cde24ea90a4a662c78e0e0d0afbe6424a33066d7e2d1cabece42a3d40335f07e');
INSERT INTO sayso_chains VALUES (0, 4, 'b63d93f12bb890b81d123b302f284c74e54aa67d4883f030e6b5e0d3ba30b11a', '251ed2cd923607bfbaab7b22931dd24d409b5cb8bcd0e955108dfc0a4ca50a87');
INSERT INTO sayso_contents VALUES ('call0', '[{"name":"call0","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call1', '[{"name":"call1","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call2', '[{"name":"call2","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call3', '[{"name":"call3","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call7', '[{"name":"call7","\u00e9":"\u2603"},null,"Rejected: no",null,null,"no"]');
INSERT INTO sayso_contents VALUES ('call4', '[{"name":"call4","\u00e9":"\u2603"},null,"it is DONE",{"n":1},null,null]');
INSERT INTO sayso_contents VALUES ('call5', '[{"name":"call5","\u00e9":"\u2603"},null,"it is DONE",{"n":1},null,null]');
INSERT INTO sayso_contents VALUES ('call6', '[{"name":"call6","\u00e9":"\u2603"},null,"it is FAILED",{"n":1},null,null]');
INSERT INTO sayso_log VALUES (3, 1, 1795812349.299366, '0000000000000000000000000000000000000000000000000000000000000003', '31146a6eab7d963afaa7d394074c3ec758b5e5370d85c5bc4d121199dc385c43', '{"event":"proposed","id":"call0","kind":"tool_call","name":"delete_pod","input":"85a25cd41339e80d44a45af7ce5542af779be3a80c7cb4e397f628b7d4e82850","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (8, 1, 1795812349.354519, '0000000000000000000000000000000000000000000000000000000000000008', '49da4366f3f8c175c51710e651f47db2175f4005cbfaaca40fae56a7ce6cb969', '{"event":"proposed","id":"call1","kind":"tool_call","name":"delete_pod","input":"1b38634c38595c2b04f434862d4c8fe94edbdd7fafaf411f509cff80a063eaf2","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (5, 1, 1795812349.374581, '0000000000000000000000000000000000000000000000000000000000000005', 'd2d5dbe4eac857ca1f7b0900db8b507d8a6780bd502e223140c8f345a758112b', '{"event":"proposed","id":"call2","kind":"tool_call","name":"delete_pod","input":"a9e131526caeb31b02d4277322fc83ac8b12913022881ce9e1eb1a3a53bd64e9","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (5, 2, 1795812349.389849, 'd2d5dbe4eac857ca1f7b0900db8b507d8a6780bd502e223140c8f345a758112b', '787cef1cc437e052b321bc6334188f0bb2e559844461ce5a4529fd037dfaa2d0', '{"event":"proposed","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (12, 1, 1795812349.396563, '000000000000000000000000000000000000000000000000000000000000000c', 'fa4ba3b1f8b93ee0a5eef62a73f843ef359045f1772b2149aee173053090fa06', '{"event":"proposed","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (4, 1, 1795812349.407995, '0000000000000000000000000000000000000000000000000000000000000004', '152db8fb2b8ba2e97137401f2e9f4a18f1278ad80e029b9085af5589b936e693', '{"event":"proposed","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (12, 2, 1795812349.417131, 'fa4ba3b1f8b93ee0a5eef62a73f843ef359045f1772b2149aee173053090fa06', '3fc794dbd0bc9a8e2354e5b4f8189b47620530a4e606f7c11a4f09cd0c80ff19', '{"event":"proposed","id":"call7","kind":"tool_call","name":"delete_pod","input":"5352dd46d6d88814e86e79a914adf81d0d8c5def5ef35136fc30285049055fc9","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (5, 3, 1795812349.429653, '787cef1cc437e052b321bc6334188f0bb2e559844461ce5a4529fd037dfaa2d0', '4357ba0ea770e000dd9831633fafe22a652f9e068fc9013d2656bb1bece4ba6c', '{"event":"approved","id":"call2","kind":"tool_call","name":"delete_pod","input":"a9e131526caeb31b02d4277322fc83ac8b12913022881ce9e1eb1a3a53bd64e9","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (5, 4, 1795812349.458055, '4357ba0ea770e000dd9831633fafe22a652f9e068fc9013d2656bb1bece4ba6c', 'e655159b885399d88c9743f3bae7fab358590648a0687f3009b8c361a58839ce', '{"event":"approved","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (5, 5, 1795812349.458055, 'e655159b885399d88c9743f3bae7fab358590648a0687f3009b8c361a58839ce', '318b43ee6fe98b29953d2ff57dd5a1952cedbbbffad2b0b425eea599264a6293', '{"event":"claimed","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":1}');
INSERT INTO sayso_log VALUES (12, 3, 1795812349.472474, '3fc794dbd0bc9a8e2354e5b4f8189b47620530a4e606f7c11a4f09cd0c80ff19', 'ebb4dbd6bba12b9d1c9c5d3a0ac2c5dccb0014efe89150ebf6cb052acd0543f9', '{"event":"approved","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (12, 4, 1795812349.472474, 'ebb4dbd6bba12b9d1c9c5d3a0ac2c5dccb0014efe89150ebf6cb052acd0543f9', '8531c2064c821d6c99d0c0bcf46b20aeb8d51e5920573dc263ed26068b0d8c8d', '{"event":"claimed","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":1}');
INSERT INTO sayso_log VALUES (4, 2, 1795812349.483003, '152db8fb2b8ba2e97137401f2e9f4a18f1278ad80e029b9085af5589b936e693', '7d96a83ea59bc2bb4276588ba947493dbbd2ab4253630cd621cf88f66fe150f3', '{"event":"approved","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (4, 3, 1795812349.483003, '7d96a83ea59bc2bb4276588ba947493dbbd2ab4253630cd621cf88f66fe150f3', '4ced6694a98c0a5bb983457c49a201fc93ee2e9ac424c9ef5d402f1b418649eb', '{"event":"claimed","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":1}');
INSERT INTO sayso_log VALUES (12, 5, 1795812349.494176, '8531c2064c821d6c99d0c0bcf46b20aeb8d51e5920573dc263ed26068b0d8c8d', '3721c579788d69528a544fb472e14948c44f0a5d3b544c10a7f25046049e5bb6', '{"event":"rejected","id":"call7","kind":"tool_call","name":"delete_pod","input":"5352dd46d6d88814e86e79a914adf81d0d8c5def5ef35136fc30285049055fc9","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","output":"02dca5728901a62da0707a79a3a08a8eb7903681bf4362ed4188b4a94fbaf03a"}');
INSERT INTO sayso_log VALUES (5, 6, 1795812349.504717, '318b43ee6fe98b29953d2ff57dd5a1952cedbbbffad2b0b425eea599264a6293', '451a5b0afd94b5974c96b300302d8fd5e72c1783ae6e8dbeb8f975ce50f2a3cb', '{"event":"done","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":1,"output":"6690acc7f99094afc81265a681efbe55ffb2b3351eea179451b6bf132d4dba87"}');
INSERT INTO sayso_log VALUES (12, 6, 1795812349.525278, '3721c579788d69528a544fb472e14948c44f0a5d3b544c10a7f25046049e5bb6', '93fac265bec48368d72962de710a64de67f46df1289a6b8bee26642fb59e5df4', '{"event":"done","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":1,"output":"6690acc7f99094afc81265a681efbe55ffb2b3351eea179451b6bf132d4dba87"}');
INSERT INTO sayso_log VALUES (4, 4, 1795812349.536274, '4ced6694a98c0a5bb983457c49a201fc93ee2e9ac424c9ef5d402f1b418649eb', 'cde24ea90a4a662c78e0e0d0afbe6424a33066d7e2d1cabece42a3d40335f07e', '{"event":"failed","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":1,"output":"e67b52a007f98adebdef7b61cbb27813764c05cb2fb420a4e69500aa3d390abf"}');
INSERT INTO sayso_log VALUES (0, 4, 1795812349.548845, 'b63d93f12bb890b81d123b302f284c74e54aa67d4883f030e6b5e0d3ba30b11a', '251ed2cd923607bfbaab7b22931dd24d409b5cb8bcd0e955108dfc0a4ca50a87', '{"event":"checkpoint","seq":3,"hash":"b63d93f12bb890b81d123b302f284c74e54aa67d4883f030e6b5e0d3ba30b11a"}');
INSERT INTO sayso_meta VALUES ('schema', '2');
INSERT INTO sayso_proposals VALUES ('call0', 'turn-call0', NULL, NULL, 'PENDING', NULL, NULL, 1795812349.299366, 0, 2795812349.299366, 1, '{"id":"call0","kind":"tool_call","name":"delete_pod","turn":"turn-call0","index":0,"call_id":"call-call0","created":1795812349.299366,"expires":2795812349.299366,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"PENDING","idempotent":false,"decision":null,"owner":null,"fence":0,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call1', 'turn-call1', NULL, NULL, 'PENDING', NULL, NULL, 1795812349.354519, 0, 2795812349.354519, 1, '{"id":"call1","kind":"tool_call","name":"delete_pod","turn":"turn-call1","index":0,"call_id":"call-call1","created":1795812349.354519,"expires":2795812349.354519,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"PENDING","idempotent":false,"decision":null,"owner":null,"fence":0,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call2', 'turn-call2', NULL, NULL, 'APPROVED', NULL, NULL, 1795812349.374581, 0, 2795812349.3745813, 1, '{"id":"call2","kind":"tool_call","name":"delete_pod","turn":"turn-call2","index":0,"call_id":"call-call2","created":1795812349.374581,"expires":2795812349.3745813,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"APPROVED","idempotent":false,"decision":{"approved":true,"at":1795812349.429653,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":0,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call3', 'turn-call3', NULL, NULL, 'EXECUTING', 'fdffcd7107c1a8dd8a049fb2090cdfa9', 2795812349.44272, 1795812349.381825, 0, NULL, 1, '{"id":"call3","kind":"tool_call","name":"delete_pod","turn":"turn-call3","index":0,"call_id":"call-call3","created":1795812349.381825,"expires":2795812349.381825,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"EXECUTING","idempotent":false,"decision":{"approved":true,"at":1795812349.44272,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":{"id":"fdffcd7107c1a8dd8a049fb2090cdfa9","boot":"67c871d0-0698-453a-aa9f-c5b5dc419934","fence":1,"lease":2795812349.44272,"claim":"8188afad9a0e61b6"},"fence":1,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call7', 'turn-call7', NULL, NULL, 'REJECTED', NULL, NULL, 1795812349.417131, 0, 1795812349.494176, 1, '{"id":"call7","kind":"tool_call","name":"delete_pod","turn":"turn-call7","index":0,"call_id":"call-call7","created":1795812349.417131,"expires":2795812349.417131,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"REJECTED","idempotent":false,"decision":{"approved":false,"at":1795812349.494176,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":0,"finished":1795812349.494176,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call4', 'turn-call4', NULL, NULL, 'DONE', NULL, NULL, 1795812349.389849, 0, 1795812349.504717, 1, '{"id":"call4","kind":"tool_call","name":"delete_pod","turn":"turn-call4","index":0,"call_id":"call-call4","created":1795812349.389849,"expires":2795812349.3898487,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"DONE","idempotent":false,"decision":{"approved":true,"at":1795812349.458055,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":1,"finished":1795812349.504717,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call5', 'turn-call5', NULL, NULL, 'DONE', NULL, NULL, 1795812349.396563, 0, 1795812349.525278, 1, '{"id":"call5","kind":"tool_call","name":"delete_pod","turn":"turn-call5","index":0,"call_id":"call-call5","created":1795812349.396563,"expires":2795812349.396563,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"DONE","idempotent":false,"decision":{"approved":true,"at":1795812349.472474,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":1,"finished":1795812349.525278,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call6', 'turn-call6', NULL, NULL, 'FAILED', NULL, NULL, 1795812349.407995, 0, 1795812349.536274, 1, '{"id":"call6","kind":"tool_call","name":"delete_pod","turn":"turn-call6","index":0,"call_id":"call-call6","created":1795812349.407995,"expires":2795812349.407995,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"FAILED","idempotent":false,"decision":{"approved":true,"at":1795812349.483003,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":1,"finished":1795812349.536274,"duration":null}');
INSERT INTO sayso_turns VALUES ('turn-call0', 'SUSPENDED', NULL, NULL, 1795812349.299366, NULL, '{"id":"turn-call0","created":1795812349.299366,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call0"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call1', 'SUSPENDED', NULL, NULL, 1795812349.354519, NULL, '{"id":"turn-call1","created":1795812349.354519,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call1"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call2', 'SUSPENDED', NULL, NULL, 1795812349.374581, NULL, '{"id":"turn-call2","created":1795812349.374581,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call2"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call3', 'SUSPENDED', NULL, NULL, 1795812349.381825, NULL, '{"id":"turn-call3","created":1795812349.381825,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call3"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call4', 'SUSPENDED', NULL, NULL, 1795812349.389849, NULL, '{"id":"turn-call4","created":1795812349.389849,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call4"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call5', 'SUSPENDED', NULL, NULL, 1795812349.396563, NULL, '{"id":"turn-call5","created":1795812349.396563,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call5"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call6', 'SUSPENDED', NULL, NULL, 1795812349.407995, NULL, '{"id":"turn-call6","created":1795812349.407995,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call6"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call7', 'SUSPENDED', NULL, NULL, 1795812349.417131, NULL, '{"id":"turn-call7","created":1795812349.417131,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call7"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
ALTER TABLE ONLY sayso_chains
    ADD CONSTRAINT sayso_chains_pkey PRIMARY KEY (chain);
ALTER TABLE ONLY sayso_contents
    ADD CONSTRAINT sayso_contents_pkey PRIMARY KEY (id);
ALTER TABLE ONLY sayso_log
    ADD CONSTRAINT sayso_log_pkey PRIMARY KEY (chain, seq);
ALTER TABLE ONLY sayso_meta
    ADD CONSTRAINT sayso_meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY sayso_proposals
    ADD CONSTRAINT sayso_proposals_pkey PRIMARY KEY (id);
ALTER TABLE ONLY sayso_turns
    ADD CONSTRAINT sayso_turns_pkey PRIMARY KEY (id);
CREATE INDEX sayso_proposals_conversation ON sayso_proposals USING btree (conversation) WHERE (conversation IS NOT NULL);
CREATE INDEX sayso_proposals_created ON sayso_proposals USING btree (created, "position", id);
CREATE INDEX sayso_proposals_emptied ON sayso_proposals USING btree (ended) WHERE (kept = 0);
CREATE INDEX sayso_proposals_ended ON sayso_proposals USING btree (ended) WHERE (kept = 1);
CREATE INDEX sayso_proposals_owner ON sayso_proposals USING btree (owner, state) WHERE (owner IS NOT NULL);
CREATE INDEX sayso_proposals_reference ON sayso_proposals USING btree (reference) WHERE (reference IS NOT NULL);
CREATE INDEX sayso_proposals_state ON sayso_proposals USING btree (state, created, "position", id);
CREATE INDEX sayso_proposals_turn ON sayso_proposals USING btree (turn) WHERE (turn IS NOT NULL);
CREATE INDEX sayso_turns_ended ON sayso_turns USING btree (ended) WHERE (ended IS NOT NULL);
CREATE INDEX sayso_turns_open ON sayso_turns USING btree (created) WHERE (ended IS NULL);
CREATE INDEX sayso_turns_owner ON sayso_turns USING btree (owner, state) WHERE (owner IS NOT NULL);
