-- For MySQL or MariaDB, as an administrator, when the table is there. Put a
-- password in the place of PASSWORD, and the relay's host in that of %.
CREATE USER {{.User}}@'%' IDENTIFIED BY 'PASSWORD';
GRANT REPLICATION SLAVE, REPLICATION CLIENT /*M! , SLAVE MONITOR */ ON *.* TO {{.User}}@'%';
GRANT SELECT ON {{.Table}} TO {{.User}}@'%';
-- For relay run --stamp as well; layout eventuate has published alone:
-- GRANT UPDATE (status, published_at) ON {{.Table}} TO {{.User}}@'%';
-- For relay prune and run --prune-after, which delete what was confirmed:
-- GRANT DELETE ON {{.Table}} TO {{.User}}@'%';

-- For RabbitMQ, in a shell on its host.
{{- if not .Partitions}} With {{.Exchange}} in the place of '^$' the
-- relay sees, too, whether the exchange is of the right type.
{{- end}}
-- rabbitmqctl add_user {{.BrokerUser}} 'PASSWORD'
-- rabbitmqctl set_permissions -p {{.Vhost}} {{.BrokerUser}} {{if .Partitions}}{{.Topology}} {{.Topology}} {{.Exchange}}{{else}}'^$' {{.Exchange}} '^$'{{end}}
