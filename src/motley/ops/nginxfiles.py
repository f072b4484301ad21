"""The configuration of the nginx image: everything to the container's output, nothing to its disk.

Servers are the files in /etc/nginx/conf.d, where a ConfigMap may be mounted.
"""

MAIN = """worker_processes auto;
pid /tmp/nginx.pid;
error_log /dev/stderr notice;
events { worker_connections 1024; }
http {
  include /etc/nginx/mime.types;
  default_type application/octet-stream;
  access_log /dev/stdout combined;
  client_body_temp_path /tmp/client_body;
  proxy_temp_path /tmp/proxy;
  fastcgi_temp_path /tmp/fastcgi;
  uwsgi_temp_path /tmp/uwsgi;
  scgi_temp_path /tmp/scgi;
  sendfile on;
  keepalive_timeout 65;
  include /etc/nginx/conf.d/*.conf;
}
"""
TYPES = """types {
  text/html html htm;
  text/css css;
  text/plain txt;
  text/javascript js;
  application/json json;
  application/xml xml;
  image/png png;
  image/jpeg jpeg jpg;
  image/svg+xml svg;
}
"""
DEFAULT_SERVER = """server {
  listen 80 default_server;
  server_name _;
  location / {
    root /usr/share/nginx/html;
    index index.html index.htm;
  }
}
"""
WELCOME = """<!doctype html>
<title>It works</title>
<p>nginx, in an image that Motley made.</p>
"""
