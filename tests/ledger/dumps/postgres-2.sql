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
INSERT INTO sayso_chains VALUES (3, 1, '0000000000000000000000000000000000000000000000000000000000000003', '1450cda3e33f7c1b42d429e5cf17c1c98782cafb765eccfd6b7c5ae21c5eabee');
INSERT INTO sayso_chains VALUES (8, 1, '0000000000000000000000000000000000000000000000000000000000000008', 'e587829a27541a5a832c4ad7a202089e4440626f666693603dcd412d04fa2026');
INSERT INTO sayso_chains VALUES (5, 6, '347c686755ae33290d14e89e9c8c892dca7aa0e3c2a7d2c49057550e6c4f37cf', 'ea082f6070c6e0686f4ee84268a46926de299d3afaabeee19e3deb6d72ef329d');
INSERT INTO sayso_chains VALUES (12, 6, 'c561e5b4153ca498e2f8f34e852ec832e39f885514c14c744a3ae9f881e1a811', 'acd1e2a9107640d7e74c71ea91479455150ede5ca2cd46d5d107de93260cf0d3');
INSERT INTO sayso_chains VALUES (4, 4, 'd9fece40fbc24c18db00d75afe456ad1a05022b3c836e375b3ab129c0b890b6c', 'a2620bb08f2d87717fbc56045b294bd4a0199956c57556254075c410c1065926');
INSERT INTO sayso_chains VALUES (0, 4, 'e4a6884afbb04f0890f69f9d85b824ed5ae8d1adba9847250709f163cc0059d8', '49fc98810b2e50d37b55b3ea00bc22e50840437cbae6ae9cba47214b2dd30121');
INSERT INTO sayso_contents VALUES ('call0', '[{"name":"call0","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call1', '[{"name":"call1","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call2', '[{"name":"call2","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call3', '[{"name":"call3","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call7', '[{"name":"call7","\u00e9":"\u2603"},null,"Rejected: no",null,null,"no"]');
INSERT INTO sayso_contents VALUES ('call4', '[{"name":"call4","\u00e9":"\u2603"},null,"it is DONE",{"n":1},null,null]');
INSERT INTO sayso_contents VALUES ('call5', '[{"name":"call5","\u00e9":"\u2603"},null,"it is DONE",{"n":1},null,null]');
INSERT INTO sayso_contents VALUES ('call6', '[{"name":"call6","\u00e9":"\u2603"},null,"it is FAILED",{"n":1},null,null]');
INSERT INTO sayso_log VALUES (3, 1, 1795810825.220298, '0000000000000000000000000000000000000000000000000000000000000003', '1450cda3e33f7c1b42d429e5cf17c1c98782cafb765eccfd6b7c5ae21c5eabee', '{"event":"proposed","id":"call0","kind":"tool_call","name":"delete_pod","input":"85a25cd41339e80d44a45af7ce5542af779be3a80c7cb4e397f628b7d4e82850","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (8, 1, 1795810825.233897, '0000000000000000000000000000000000000000000000000000000000000008', 'e587829a27541a5a832c4ad7a202089e4440626f666693603dcd412d04fa2026', '{"event":"proposed","id":"call1","kind":"tool_call","name":"delete_pod","input":"1b38634c38595c2b04f434862d4c8fe94edbdd7fafaf411f509cff80a063eaf2","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (5, 1, 1795810825.237507, '0000000000000000000000000000000000000000000000000000000000000005', '08f8cfa871efe20d59a6fefa79bfda3731ca0a89afa9a689281aa5a4a4f1c975', '{"event":"proposed","id":"call2","kind":"tool_call","name":"delete_pod","input":"a9e131526caeb31b02d4277322fc83ac8b12913022881ce9e1eb1a3a53bd64e9","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (5, 2, 1795810825.245661, '08f8cfa871efe20d59a6fefa79bfda3731ca0a89afa9a689281aa5a4a4f1c975', '2d0a61dffe3e945890961de31d5a6318694e78c749c05d58499f08235b705eb5', '{"event":"proposed","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (12, 1, 1795810825.249476, '000000000000000000000000000000000000000000000000000000000000000c', '12d7bf0cf7725053d644e5ef7a79ca10b9119431e6e89195a468e4dd22c828c6', '{"event":"proposed","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (4, 1, 1795810825.253481, '0000000000000000000000000000000000000000000000000000000000000004', '54f51b9ac3b226a90bfd25fb6573cf1d64a2061214644ae45622d8d3876d3e22', '{"event":"proposed","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (12, 2, 1795810825.257787, '12d7bf0cf7725053d644e5ef7a79ca10b9119431e6e89195a468e4dd22c828c6', '9931f4808acc949e1223ac152bf2d064cc98a06ebe96612aa213fd72d9834e53', '{"event":"proposed","id":"call7","kind":"tool_call","name":"delete_pod","input":"5352dd46d6d88814e86e79a914adf81d0d8c5def5ef35136fc30285049055fc9","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (5, 3, 1795810825.265846, '2d0a61dffe3e945890961de31d5a6318694e78c749c05d58499f08235b705eb5', '731a20a9e37e4efd2b89e83cdb0444ed4b8b1ce37b68522a505944ce96ee75b1', '{"event":"approved","id":"call2","kind":"tool_call","name":"delete_pod","input":"a9e131526caeb31b02d4277322fc83ac8b12913022881ce9e1eb1a3a53bd64e9","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (5, 4, 1795810825.272465, '731a20a9e37e4efd2b89e83cdb0444ed4b8b1ce37b68522a505944ce96ee75b1', '648c6bd5378a96a5a35cf9d0bc1471fede43dbca026bd5eb6c76fbdc4f2081ad', '{"event":"approved","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (5, 5, 1795810825.272465, '648c6bd5378a96a5a35cf9d0bc1471fede43dbca026bd5eb6c76fbdc4f2081ad', '347c686755ae33290d14e89e9c8c892dca7aa0e3c2a7d2c49057550e6c4f37cf', '{"event":"claimed","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":1}');
INSERT INTO sayso_log VALUES (12, 3, 1795810825.27755, '9931f4808acc949e1223ac152bf2d064cc98a06ebe96612aa213fd72d9834e53', '9bac05eccd5b98a4f826b1e45a9ef30d7289e0f8906073106b42db9f08e729a5', '{"event":"approved","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (12, 4, 1795810825.27755, '9bac05eccd5b98a4f826b1e45a9ef30d7289e0f8906073106b42db9f08e729a5', 'd8af8c250a790d34cb5e227c47cf2e6cfbd474aa695d7fb65b77f3905c157db2', '{"event":"claimed","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":1}');
INSERT INTO sayso_log VALUES (4, 2, 1795810825.281542, '54f51b9ac3b226a90bfd25fb6573cf1d64a2061214644ae45622d8d3876d3e22', '029994feae4d35b83b9a0e6859a5c6beb4fe1b063f53b5629f901a08618b1c99', '{"event":"approved","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (4, 3, 1795810825.281542, '029994feae4d35b83b9a0e6859a5c6beb4fe1b063f53b5629f901a08618b1c99', 'd9fece40fbc24c18db00d75afe456ad1a05022b3c836e375b3ab129c0b890b6c', '{"event":"claimed","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":1}');
INSERT INTO sayso_log VALUES (12, 5, 1795810825.285544, 'd8af8c250a790d34cb5e227c47cf2e6cfbd474aa695d7fb65b77f3905c157db2', 'c561e5b4153ca498e2f8f34e852ec832e39f885514c14c744a3ae9f881e1a811', '{"event":"rejected","id":"call7","kind":"tool_call","name":"delete_pod","input":"5352dd46d6d88814e86e79a914adf81d0d8c5def5ef35136fc30285049055fc9","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","output":"02dca5728901a62da0707a79a3a08a8eb7903681bf4362ed4188b4a94fbaf03a"}');
INSERT INTO sayso_log VALUES (5, 6, 1795810825.289818, '347c686755ae33290d14e89e9c8c892dca7aa0e3c2a7d2c49057550e6c4f37cf', 'ea082f6070c6e0686f4ee84268a46926de299d3afaabeee19e3deb6d72ef329d', '{"event":"done","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":1,"output":"6690acc7f99094afc81265a681efbe55ffb2b3351eea179451b6bf132d4dba87"}');
INSERT INTO sayso_log VALUES (12, 6, 1795810825.293625, 'c561e5b4153ca498e2f8f34e852ec832e39f885514c14c744a3ae9f881e1a811', 'acd1e2a9107640d7e74c71ea91479455150ede5ca2cd46d5d107de93260cf0d3', '{"event":"done","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":1,"output":"6690acc7f99094afc81265a681efbe55ffb2b3351eea179451b6bf132d4dba87"}');
INSERT INTO sayso_log VALUES (4, 4, 1795810825.297557, 'd9fece40fbc24c18db00d75afe456ad1a05022b3c836e375b3ab129c0b890b6c', 'a2620bb08f2d87717fbc56045b294bd4a0199956c57556254075c410c1065926', '{"event":"failed","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":1,"output":"e67b52a007f98adebdef7b61cbb27813764c05cb2fb420a4e69500aa3d390abf"}');
INSERT INTO sayso_log VALUES (0, 4, 1795810825.301613, 'e4a6884afbb04f0890f69f9d85b824ed5ae8d1adba9847250709f163cc0059d8', '49fc98810b2e50d37b55b3ea00bc22e50840437cbae6ae9cba47214b2dd30121', '{"event":"checkpoint","seq":3,"hash":"e4a6884afbb04f0890f69f9d85b824ed5ae8d1adba9847250709f163cc0059d8"}');
INSERT INTO sayso_meta VALUES ('schema', '2');
INSERT INTO sayso_proposals VALUES ('call0', 'turn-call0', NULL, NULL, 'PENDING', NULL, NULL, 1795810825.220298, 0, 2795810825.220298, 1, '{"id":"call0","kind":"tool_call","name":"delete_pod","turn":"turn-call0","index":0,"call_id":"call-call0","created":1795810825.220298,"expires":2795810825.220298,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"PENDING","idempotent":false,"decision":null,"owner":null,"fence":0,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call1', 'turn-call1', NULL, NULL, 'PENDING', NULL, NULL, 1795810825.233897, 0, 2795810825.233897, 1, '{"id":"call1","kind":"tool_call","name":"delete_pod","turn":"turn-call1","index":0,"call_id":"call-call1","created":1795810825.233897,"expires":2795810825.233897,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"PENDING","idempotent":false,"decision":null,"owner":null,"fence":0,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call2', 'turn-call2', NULL, NULL, 'APPROVED', NULL, NULL, 1795810825.237507, 0, 2795810825.237507, 1, '{"id":"call2","kind":"tool_call","name":"delete_pod","turn":"turn-call2","index":0,"call_id":"call-call2","created":1795810825.237507,"expires":2795810825.237507,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"APPROVED","idempotent":false,"decision":{"approved":true,"at":1795810825.265846,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":0,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call3', 'turn-call3', NULL, NULL, 'EXECUTING', 'c291909d0c89114018e2d569726a14c8', 2795810825.269662, 1795810825.241679, 0, NULL, 1, '{"id":"call3","kind":"tool_call","name":"delete_pod","turn":"turn-call3","index":0,"call_id":"call-call3","created":1795810825.241679,"expires":2795810825.241679,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"EXECUTING","idempotent":false,"decision":{"approved":true,"at":1795810825.269662,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":{"id":"c291909d0c89114018e2d569726a14c8","boot":"67c871d0-0698-453a-aa9f-c5b5dc419934","fence":1,"lease":2795810825.269662,"claim":"109b8d129f0e6cbd"},"fence":1,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call7', 'turn-call7', NULL, NULL, 'REJECTED', NULL, NULL, 1795810825.257787, 0, 1795810825.285544, 1, '{"id":"call7","kind":"tool_call","name":"delete_pod","turn":"turn-call7","index":0,"call_id":"call-call7","created":1795810825.257787,"expires":2795810825.2577868,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"REJECTED","idempotent":false,"decision":{"approved":false,"at":1795810825.285544,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":0,"finished":1795810825.285544,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call4', 'turn-call4', NULL, NULL, 'DONE', NULL, NULL, 1795810825.245661, 0, 1795810825.289818, 1, '{"id":"call4","kind":"tool_call","name":"delete_pod","turn":"turn-call4","index":0,"call_id":"call-call4","created":1795810825.245661,"expires":2795810825.245661,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"DONE","idempotent":false,"decision":{"approved":true,"at":1795810825.272465,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":1,"finished":1795810825.289818,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call5', 'turn-call5', NULL, NULL, 'DONE', NULL, NULL, 1795810825.249476, 0, 1795810825.293625, 1, '{"id":"call5","kind":"tool_call","name":"delete_pod","turn":"turn-call5","index":0,"call_id":"call-call5","created":1795810825.249476,"expires":2795810825.249476,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"DONE","idempotent":false,"decision":{"approved":true,"at":1795810825.27755,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":1,"finished":1795810825.293625,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call6', 'turn-call6', NULL, NULL, 'FAILED', NULL, NULL, 1795810825.253481, 0, 1795810825.297557, 1, '{"id":"call6","kind":"tool_call","name":"delete_pod","turn":"turn-call6","index":0,"call_id":"call-call6","created":1795810825.253481,"expires":2795810825.253481,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"FAILED","idempotent":false,"decision":{"approved":true,"at":1795810825.281542,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":1,"finished":1795810825.297557,"duration":null}');
INSERT INTO sayso_turns VALUES ('turn-call0', 'SUSPENDED', NULL, NULL, 1795810825.220298, NULL, '{"id":"turn-call0","created":1795810825.220298,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call0"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call1', 'SUSPENDED', NULL, NULL, 1795810825.233897, NULL, '{"id":"turn-call1","created":1795810825.233897,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call1"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call2', 'SUSPENDED', NULL, NULL, 1795810825.237507, NULL, '{"id":"turn-call2","created":1795810825.237507,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call2"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call3', 'SUSPENDED', NULL, NULL, 1795810825.241679, NULL, '{"id":"turn-call3","created":1795810825.241679,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call3"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call4', 'SUSPENDED', NULL, NULL, 1795810825.245661, NULL, '{"id":"turn-call4","created":1795810825.245661,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call4"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call5', 'SUSPENDED', NULL, NULL, 1795810825.249476, NULL, '{"id":"turn-call5","created":1795810825.249476,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call5"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call6', 'SUSPENDED', NULL, NULL, 1795810825.253481, NULL, '{"id":"turn-call6","created":1795810825.253481,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call6"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call7', 'SUSPENDED', NULL, NULL, 1795810825.257787, NULL, '{"id":"turn-call7","created":1795810825.257787,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call7"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
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
CREATE INDEX sayso_proposals_ended ON sayso_proposals USING btree (ended) WHERE (kept = 1);
CREATE INDEX sayso_proposals_owner ON sayso_proposals USING btree (owner, state) WHERE (owner IS NOT NULL);
CREATE INDEX sayso_proposals_reference ON sayso_proposals USING btree (reference) WHERE (reference IS NOT NULL);
CREATE INDEX sayso_proposals_state ON sayso_proposals USING btree (state, created, "position", id);
CREATE INDEX sayso_proposals_turn ON sayso_proposals USING btree (turn) WHERE (turn IS NOT NULL);
CREATE INDEX sayso_turns_ended ON sayso_turns USING btree (ended) WHERE (ended IS NOT NULL);
CREATE INDEX sayso_turns_open ON sayso_turns USING btree (created) WHERE (ended IS NULL);
CREATE INDEX sayso_turns_owner ON sayso_turns USING btree (owner, state) WHERE (owner IS NOT NULL);
